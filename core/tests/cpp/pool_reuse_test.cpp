// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory of a pool is reused only after the work that used it.
#include "device_support.hpp"
#include "memory/pool.hpp"
#include "streams/null_device.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

namespace datapath::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t mib = std::uint64_t{1} << 20U;

class PoolReuseTest : public ::testing::Test {
 protected:
  Ref<NullDevice> device_ = make_ref<NullDevice>();
  Ref<Pool> pool_         = make(mib);
  dp_stream stream_       = device_->create_stream(0);
  std::uint32_t flag_{0};

  ~PoolReuseTest() override
  {
    // The library may keep the device longer than this flag lives.
    unblock();
    device_->synchronize(stream_);
  }

  [[nodiscard]] Ref<Pool> make(std::uint64_t budget)
  {
    PoolOptions options;
    options.budget = budget;
    options.device = device_;
    return make_ref<Pool>(std::move(options));
  }
  void block() { device_->wait_value32(stream_, address_of(&flag_), 1); }
  void unblock() { std::atomic_ref{flag_}.store(1); }
  void wait_until_nothing_is_registered()
  {
    for (int round = 0; round < 2000 && device_->registered_ranges() != 0; ++round) {
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_EQ(device_->registered_ranges(), 0U);
  }
};

TEST_F(PoolReuseTest, IsNotReusedWhileWorkIsInFlight)
{
  auto buffer            = pool_->allocate(mib / 2);
  auto const* const data = buffer->data();
  block();
  buffer->record_use(*device_, stream_);
  buffer = nullptr;
  EXPECT_EQ(pool_->stats().pending, mib / 2);
  EXPECT_EQ(pool_->stats().allocated, 0U);
  auto const other = pool_->allocate(mib / 2);
  EXPECT_NE(other->data(), data);
  unblock();
  device_->synchronize(stream_);
  EXPECT_EQ(pool_->stats().pending, 0U);
  EXPECT_EQ(pool_->allocate(mib / 2)->data(), data);
  pool_->check_invariants();
}

TEST_F(PoolReuseTest, WaitsForTheOldestUnderPressure)
{
  device_->set_copy_delay(50'000'000);
  std::vector<std::byte> source(mib, std::byte{1});
  auto buffer = pool_->allocate(mib);
  device_->copy_async(
    address_of(buffer->data()), address_of(source.data()), mib, CopyKind::host_to_device, stream_);
  // Before the use is recorded: the pool waits for what comes before that only.
  auto const copied = device_->acquire_event();
  device_->record(copied, stream_);
  buffer->record_use(*device_, stream_);
  buffer          = nullptr;
  auto const next = pool_->allocate(mib);
  EXPECT_TRUE(device_->query(copied));
  // Nothing of the copy arrives any more.
  std::memset(next->data(), 2, mib);
  device_->synchronize(stream_);
  EXPECT_EQ(*static_cast<std::byte*>(next->data()), std::byte{2});
}

TEST_F(PoolReuseTest, TryingToAllocateWaitsForNothing)
{
  block();
  pool_->allocate(mib)->record_use(*device_, stream_);
  EXPECT_FALSE(pool_->try_allocate(mib));
  EXPECT_EQ(pool_->stats().pending, mib);
  unblock();
  device_->synchronize(stream_);
  EXPECT_TRUE(pool_->try_allocate(mib));
  auto const held = pool_->allocate(mib);
  EXPECT_EQ(status_of([&] { (void)pool_->try_allocate(4096); }), DP_ERR_BUDGET);
  pool_->check_invariants();
}

TEST_F(PoolReuseTest, WaitsForEveryStreamThatWasNamed)
{
  auto const second = device_->create_stream(0);
  auto buffer       = pool_->allocate(4096);
  buffer->record_use(*device_, second);
  block();
  buffer->record_use(*device_, stream_);
  buffer = nullptr;
  device_->synchronize(second);
  EXPECT_EQ(pool_->stats().pending, 4096U);
  unblock();
  device_->synchronize(stream_);
  EXPECT_EQ(pool_->stats().pending, 0U);
}

TEST_F(PoolReuseTest, ALaterUseOfAStreamCounts)
{
  auto buffer = pool_->allocate(4096);
  buffer->record_use(*device_, stream_);
  device_->synchronize(stream_);
  block();
  buffer->record_use(*device_, stream_);
  buffer = nullptr;
  EXPECT_EQ(pool_->stats().pending, 4096U);
  unblock();
}

TEST_F(PoolReuseTest, RefusesAStreamThatCaptures)
{
  auto const buffer = pool_->allocate(4096);
  device_->begin_capture(stream_);
  auto const error = error_of([&] { buffer->record_use(*device_, stream_); });
  EXPECT_EQ(error.status, DP_ERR_UNSUPPORTED);
  EXPECT_NE(error.message.find("graph"), std::string::npos);
  device_->end_capture(stream_);
}

TEST_F(PoolReuseTest, SeveralThreadsWaitUnderPressure)
{
  device_->set_copy_delay(1'000'000);
  std::vector<std::byte> source(mib / 2);
  std::vector<std::thread> threads;
  std::atomic<int> inside{0};
  std::atomic<int> failures{0};
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&] {
      for (int round = 0; round < 30; ++round) {
        try {
          // Each thread holds at most half, so that waiting for work in flight is always enough.
          auto const buffer = pool_->allocate(mib / 2);
          if (++inside > 2) { ++failures; }
          device_->copy_async(address_of(buffer->data()),
                              address_of(source.data()),
                              mib / 2,
                              CopyKind::host_to_device,
                              stream_);
          buffer->record_use(*device_, stream_);
          --inside;
        } catch (Error const&) {
          ++failures;
        }
      }
    });
  }
  for (auto& thread : threads) { thread.join(); }
  EXPECT_EQ(failures, 0);
  device_->synchronize(stream_);
  EXPECT_EQ(pool_->stats().pending, 0U);
  pool_->check_invariants();
}

TEST_F(PoolReuseTest, APoolWithoutReferencesGoesWhenTheWorkHasEnded)
{
  auto buffer = pool_->allocate(mib);
  block();
  buffer->record_use(*device_, stream_);
  buffer = nullptr;
  pool_  = nullptr;
  EXPECT_GT(device_->registered_ranges(), 0U);
  unblock();
  wait_until_nothing_is_registered();
}

TEST_F(PoolReuseTest, AClosedPoolGivesMemoryBackWhenTheWorkHasEndedWithNoFurtherCall)
{
  auto first  = pool_->allocate(4096);
  auto second = pool_->allocate(4096);
  block();
  first->record_use(*device_, stream_);
  second->record_use(*device_, stream_);
  first = nullptr;
  pool_->close();
  second = nullptr;
  EXPECT_GT(device_->registered_ranges(), 0U);
  unblock();
  wait_until_nothing_is_registered();
}

}  // namespace
}  // namespace datapath::testing
