// SPDX-License-Identifier: Apache-2.0
/// @file
/// The CUDA device; each test is skipped with the reason where there is none.
#include "device_support.hpp"
#include "memory/pool.hpp"
#include "memory/registration.hpp"
#include "shim/cuda.hpp"
#include "streams/device.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

namespace datapath::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t mib = std::uint64_t{1} << 20U;

class CudaDeviceTest : public ::testing::Test {
 protected:
  Ref<Device> device_;
  dp_stream stream_{0};

  void SetUp() override
  {
    std::string reason;
    device_ = Device::open_default(&reason);
    if (!device_) { GTEST_SKIP() << reason; }
    stream_ = device_->create_stream(0);
  }
  ~CudaDeviceTest() override
  {
    if (device_) { device_->destroy_stream(stream_); }
  }

  [[nodiscard]] Ref<Pool> make_pool(std::uint64_t budget, std::uint64_t piece_bytes = 0) const
  {
    PoolOptions options;
    options.budget      = budget;
    options.piece_bytes = piece_bytes;
    options.device      = device_;
    return make_ref<Pool>(std::move(options));
  }

  /// The result of one copy of host memory to the device.
  [[nodiscard]] dp_status copy_out(void const* source, std::uint64_t nbytes)
  {
    auto const target = device_->allocate(nbytes);
    auto const status = status_of([&] {
      device_->copy_async(target, address_of(source), nbytes, CopyKind::host_to_device, stream_);
      device_->synchronize(stream_);
    });
    device_->free(target);
    return status;
  }
};

TEST_F(CudaDeviceTest, RefusesAnOrdinalThatIsNotThere)
{
  auto const error = error_of([] { (void)Device::open("cuda:4000"); });
  EXPECT_EQ(error.status, DP_ERR_INVALID);
  EXPECT_NE(error.message.find("cuda:4000"), std::string::npos);
}

TEST_F(CudaDeviceTest, SaysWhichCallFailedAndHow)
{
  auto const error = error_of([&] { device_->free(0x10); });
  EXPECT_EQ(error.status, DP_ERR_CUDA);
  EXPECT_EQ(error.cuda_result, cuda::error_invalid_value);
  EXPECT_NE(error.message.find("cuMemFree(0x10) on cuda:"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("CUDA_ERROR_INVALID_VALUE"), std::string::npos) << error.message;
  EXPECT_EQ(status_of([&] { (void)device_->allocate(std::uint64_t{1} << 45U); }), DP_ERR_BUDGET);
}

TEST_F(CudaDeviceTest, OneCopyMovesABufferLargerThanWhatThePoolGrowsBy)
{
  auto const pool   = make_pool(64 * mib, 4 * mib);
  auto const source = pool->allocate(11 * mib);
  auto const target = pool->allocate(11 * mib);
  auto* const first = static_cast<std::uint32_t*>(source->data());
  std::iota(first, first + source->nbytes() / 4, 0U);
  std::memset(target->data(), 0, target->nbytes());
  auto const device = device_->allocate(source->nbytes());
  auto const second = device_->allocate(source->nbytes());
  device_->copy_async(
    device, address_of(source->data()), source->nbytes(), CopyKind::host_to_device, stream_);
  device_->copy_async(second, device, source->nbytes(), CopyKind::device_to_device, stream_);
  device_->fill_async(second, 0xFF, 8, stream_);
  device_->copy_async(
    address_of(target->data()), second, target->nbytes(), CopyKind::device_to_host, stream_);
  device_->synchronize(stream_);
  std::memset(source->data(), 0xFF, 8);
  EXPECT_EQ(std::memcmp(source->data(), target->data(), source->nbytes()), 0);
  EXPECT_EQ(cuda::pointer_ordinal(reinterpret_cast<void*>(device)), device_->ordinal());
  EXPECT_EQ(cuda::pointer_ordinal(source->data()), -1);
  device_->free(device);
  device_->free(second);
}

TEST_F(CudaDeviceTest, OrdersStreamsByEvents)
{
  auto const pool  = make_pool(4 * mib);
  auto const flags = pool->allocate(8);
  auto* const word = static_cast<std::uint32_t*>(flags->data());
  std::memset(word, 0, 8);
  auto const other = device_->create_stream(1);
  auto const event = device_->acquire_event();
  device_->wait_value32(stream_, flags->device_address(), 1);
  device_->record(event, stream_);
  device_->wait_event(other, event);
  device_->write_value32(other, flags->device_address() + 4, 7);
  std::atomic_ref{word[0]}.store(1);
  device_->synchronize(other);
  EXPECT_TRUE(device_->query(event));
  EXPECT_EQ(std::atomic_ref{word[1]}.load(), 7U);
  EXPECT_FALSE(device_->is_capturing(stream_));
  device_->release_event(event);
  device_->destroy_stream(other);
}

TEST_F(CudaDeviceTest, DoesNotReuseMemoryOfWorkInFlight)
{
  auto const pool  = make_pool(4 * mib);
  auto const flags = pool->allocate(4);
  auto* const word = static_cast<std::uint32_t*>(flags->data());
  *word            = 0;
  device_->wait_value32(stream_, flags->device_address(), 1);
  auto buffer = pool->allocate(mib);
  buffer->record_use(*device_, stream_);
  buffer = nullptr;
  EXPECT_EQ(pool->stats().pending, mib);
  std::atomic_ref{*word}.store(1);
  device_->synchronize(stream_);
  EXPECT_EQ(pool->stats().pending, 0U);
}

TEST_F(CudaDeviceTest, RegistersInPlaceAndSharesWithOthers)
{
  auto const page    = page_bytes();
  auto const& driver = cuda::driver();
  Mapping const memory{64 * page};
  // Another library's registration, made through the driver itself; a context is needed for it.
  ASSERT_EQ(driver.context_push(cuda::primary_context(device_->ordinal())), cuda::success);
  ASSERT_EQ(driver.host_register(memory.data() + 8 * page,
                                 2 * page,
                                 cuda::host_register_portable | cuda::host_register_device_map),
            cuda::success);
  auto whole = register_memory(memory.data(), memory.nbytes(), false, true, device_, {});
  EXPECT_TRUE(whole->is_pinned());
  EXPECT_NE(device_->mapped_address(memory.data() + 63 * page), 0U);
  auto again = register_memory(memory.data() + 100, 3 * page, false, true, device_, {});
  EXPECT_EQ(again->device_address(), device_->mapped_address(memory.data() + 100));
  whole = nullptr;
  again = nullptr;
  EXPECT_EQ(device_->mapped_address(memory.data() + 20 * page), 0U);
  EXPECT_NE(device_->mapped_address(memory.data() + 8 * page), 0U);
  EXPECT_EQ(driver.host_unregister(memory.data() + 8 * page), cuda::success);
  cuda::Context popped = nullptr;
  EXPECT_EQ(driver.context_pop(&popped), cuda::success);
}

TEST_F(CudaDeviceTest, LeavesNeighboursOfARegisteredRangeAlone)
{
  auto const page = page_bytes();
  Mapping const memory{16 * page};
  auto* const start = memory.data() + page + 100;
  auto first        = register_memory(start, 2 * page, false, true, device_, {});
  EXPECT_EQ(copy_out(start, 2 * page), DP_OK);
  EXPECT_EQ(copy_out(memory.data() + page, 100), DP_OK);
  EXPECT_EQ(copy_out(start + 2 * page, 3 * page), DP_OK) << "it begins on the last page";
  auto const second = register_memory(start + 2 * page, page, false, true, device_, {});
  EXPECT_EQ(copy_out(start, 3 * page), DP_ERR_CUDA) << "over two registered ranges";
  first = nullptr;
  EXPECT_EQ(copy_out(start + 2 * page, page), DP_OK);
  EXPECT_NE(device_->mapped_address(start + 2 * page), 0U);
}

TEST_F(CudaDeviceTest, RegistersReadOnlyMemoryOrSaysWhyNot)
{
  Mapping const memory{4 * page_bytes(), PROT_READ};
  auto const buffer = register_memory(memory.data(), memory.nbytes(), true, false, device_, {});
  EXPECT_TRUE(buffer->is_pinned() || !buffer->reason().empty());
}

TEST_F(CudaDeviceTest, UnregistersAfterTheWorkWithNoFurtherCall)
{
  auto const pool  = make_pool(mib);
  auto const flags = pool->allocate(4);
  auto* const word = static_cast<std::uint32_t*>(flags->data());
  *word            = 0;
  Mapping const memory{4 * page_bytes()};
  std::atomic<int> released{0};
  dp_owner const owner{[](void* context) { ++*static_cast<std::atomic<int>*>(context); },
                       &released};
  auto buffer = register_memory(memory.data(), memory.nbytes(), false, true, device_, owner);
  device_->wait_value32(stream_, flags->device_address(), 1);
  buffer->record_use(*device_, stream_);
  buffer = nullptr;
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(released, 0);
  EXPECT_NE(device_->mapped_address(memory.data()), 0U);
  std::atomic_ref{*word}.store(1);
  for (int round = 0; round < 2000 && released == 0; ++round) { std::this_thread::sleep_for(1ms); }
  EXPECT_EQ(released, 1);
  EXPECT_EQ(device_->mapped_address(memory.data()), 0U);
}

}  // namespace
}  // namespace datapath::testing
