// SPDX-License-Identifier: Apache-2.0
#include "device_support.hpp"

#include <datapath/datapath.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

namespace datapath::testing {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20U;

class MemoryAbiTest : public ::testing::Test {
 protected:
  dp_device* device_{nullptr};
  dp_pool* pool_{nullptr};

  void SetUp() override
  {
    ASSERT_EQ(dp_device_open("null", &device_), DP_OK);
    dp_pool_options options{};
    options.size   = sizeof options;
    options.budget = 8 * mib;
    options.device = device_;
    ASSERT_EQ(dp_pool_create(&options, &pool_), DP_OK);
  }
  ~MemoryAbiTest() override
  {
    dp_pool_release(pool_);
    dp_device_release(device_);
  }

  [[nodiscard]] dp_pool_stats stats() const
  {
    dp_pool_stats stats{};
    stats.size = sizeof stats;
    EXPECT_EQ(dp_pool_get_stats(pool_, &stats), DP_OK);
    return stats;
  }
};

TEST_F(MemoryAbiTest, RefusesMissingAndWrongArguments)
{
  dp_buffer* buffer = nullptr;
  dp_pool* pool     = nullptr;
  dp_pool_options options{};
  EXPECT_EQ(dp_pool_create(&options, &pool), DP_ERR_INVALID) << "the size is not set";
  options.size      = sizeof options;
  options.numa_node = -1;
  EXPECT_EQ(dp_pool_create(&options, &pool), DP_ERR_INVALID);
  EXPECT_EQ(dp_pool_create(nullptr, nullptr), DP_ERR_INVALID);
  EXPECT_EQ(dp_pool_allocate(nullptr, 1, 0, &buffer), DP_ERR_INVALID);
  EXPECT_EQ(dp_pool_allocate(pool_, 1, 0, nullptr), DP_ERR_INVALID);
  EXPECT_EQ(dp_pool_allocate(pool_, 1, 3, &buffer), DP_ERR_INVALID);
  EXPECT_EQ(dp_pool_allocate(pool_, 9 * mib, 0, &buffer), DP_ERR_BUDGET);
  EXPECT_EQ(dp_buffer_get_info(nullptr, nullptr), DP_ERR_INVALID);
  EXPECT_EQ(dp_buffer_record_use(nullptr, device_, 0), DP_ERR_INVALID);
  EXPECT_EQ(buffer, nullptr);
  dp_buffer_release(nullptr);
  dp_pool_release(nullptr);
}

TEST_F(MemoryAbiTest, AllocatesReservesAndTrims)
{
  dp_buffer* buffer = nullptr;
  ASSERT_EQ(dp_pool_allocate(pool_, 5000, 8192, &buffer), DP_OK);
  dp_buffer_info info{};
  info.size = sizeof info;
  ASSERT_EQ(dp_buffer_get_info(buffer, &info), DP_OK);
  EXPECT_EQ(info.is_pinned, 1);
  EXPECT_EQ(info.is_registered, 0);
  EXPECT_EQ(info.device_ordinal, -1) << "no CUDA device can use it";
  EXPECT_EQ(info.device_pointer, address_of(info.pointer));
  EXPECT_EQ(info.nbytes, 5000U);
  EXPECT_EQ(info.reason, nullptr);
  std::memset(info.pointer, 1, info.nbytes);
  EXPECT_EQ(dp_buffer_record_use(buffer, device_, 0), DP_OK);
  EXPECT_EQ(stats().allocated, 8192U);
  EXPECT_EQ(dp_stream_synchronize(device_, 0), DP_OK);
  dp_buffer_retain(buffer);
  dp_buffer_release(buffer);
  EXPECT_EQ(stats().live_buffers, 1U);
  dp_buffer_release(buffer);
  EXPECT_EQ(stats().live_buffers, 0U);
  EXPECT_EQ(dp_pool_reserve(pool_, 2 * mib), DP_OK);
  std::uint64_t released = 0;
  auto const backed      = stats().backed;
  EXPECT_EQ(dp_pool_trim(pool_, &released), DP_OK);
  EXPECT_EQ(released, backed);
  EXPECT_EQ(dp_pool_trim(pool_, nullptr), DP_OK);
  EXPECT_EQ(dp_pool_close(pool_), DP_OK);
  EXPECT_EQ(dp_pool_allocate(pool_, 1, 0, &buffer), DP_ERR_CLOSED);
}

TEST_F(MemoryAbiTest, GivesAnOlderCallerAsMuchAsItHasRoomFor)
{
  dp_pool_stats stats{};
  stats.pieces = 77;
  stats.size   = offsetof(dp_pool_stats, backed);
  ASSERT_EQ(dp_pool_get_stats(pool_, &stats), DP_OK);
  EXPECT_EQ(stats.budget, 8 * mib);
  EXPECT_EQ(stats.pieces, 77U);
}

TEST_F(MemoryAbiTest, RegistersAndReleasesTheOwnerOnceWhateverHappens)
{
  int released = 0;
  dp_owner const owner{[](void* context) { ++*static_cast<int*>(context); }, &released};
  std::vector<std::byte> memory(10'000);
  dp_register_options options{};
  options.size      = sizeof options;
  options.required  = 1;
  options.device    = device_;
  dp_buffer* buffer = nullptr;
  EXPECT_EQ(dp_register(memory.data(), 1, &options, owner, nullptr), DP_ERR_INVALID);
  EXPECT_EQ(released, 1);
  EXPECT_EQ(dp_register(nullptr, 1, &options, owner, &buffer), DP_ERR_INVALID);
  EXPECT_EQ(released, 2);
  ASSERT_EQ(dp_register(memory.data(), memory.size(), &options, owner, &buffer), DP_OK);
  dp_buffer_info info{};
  info.size = sizeof info;
  ASSERT_EQ(dp_buffer_get_info(buffer, &info), DP_OK);
  EXPECT_EQ(info.is_pinned, 1);
  EXPECT_EQ(info.is_registered, 1);
  EXPECT_EQ(info.pointer, memory.data());
  EXPECT_EQ(released, 2);
  dp_buffer_release(buffer);
  EXPECT_EQ(released, 3);
  ASSERT_EQ(dp_register(memory.data(), 0, &options, dp_owner{}, &buffer), DP_OK);
  dp_buffer_release(buffer);
}

}  // namespace
}  // namespace datapath::testing
