// SPDX-License-Identifier: Apache-2.0
#include "streams/null_device.hpp"

#include "device_support.hpp"
#include "shim/cuda_types.hpp"

#include <gtest/gtest.h>

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace datapath::testing {
namespace {

using namespace std::chrono_literals;

class NullDeviceTest : public ::testing::Test {
 protected:
  Ref<NullDevice> device_ = make_ref<NullDevice>();

  void copy(void* destination, void const* source, std::size_t nbytes, dp_stream stream)
  {
    device_->copy_async(
      address_of(destination), address_of(source), nbytes, CopyKind::host_to_device, stream);
  }
};

TEST_F(NullDeviceTest, RefusesAStreamThatIsNotItsOwn)
{
  EXPECT_EQ(status_of([&] { device_->synchronize(12345); }), DP_ERR_INVALID);
}

TEST_F(NullDeviceTest, RefusesADestroyedStream)
{
  auto const stream = device_->create_stream(0);
  device_->destroy_stream(stream);
  EXPECT_EQ(status_of([&] { device_->synchronize(stream); }), DP_ERR_INVALID);
}

TEST_F(NullDeviceTest, RefusesWrongAndRepeatedFrees)
{
  auto const address = device_->allocate(100);
  EXPECT_EQ(status_of([&] { device_->free(address + 8); }), DP_ERR_CUDA);
  device_->free(address);
  EXPECT_EQ(status_of([&] { device_->free(address); }), DP_ERR_CUDA);
  EXPECT_EQ(status_of([&] { device_->free(0); }), DP_ERR_CUDA);
}

TEST_F(NullDeviceTest, RefusesAnUnalignedWord)
{
  std::uint32_t words[2] = {};
  EXPECT_EQ(status_of([&] { device_->write_value32(0, address_of(words) + 1, 1); }),
            DP_ERR_INVALID);
}

TEST_F(NullDeviceTest, CarriesOutAStreamsWorkInOrder)
{
  constexpr int steps = 1000;
  std::vector<int> values(steps);
  std::iota(values.begin(), values.end(), 0);
  int target        = -1;
  int copied        = -1;
  auto const stream = device_->create_stream(0);
  for (auto const& value : values) { copy(&target, &value, sizeof value, stream); }
  copy(&copied, &target, sizeof target, stream);
  device_->synchronize(stream);
  EXPECT_EQ(copied, steps - 1);
}

TEST_F(NullDeviceTest, TakesTheDefaultStreamsAsOne)
{
  std::uint32_t flag = 0;
  device_->wait_value32(0, address_of(&flag), 1);
  auto const event = device_->acquire_event();
  device_->record(event, 2);
  EXPECT_FALSE(device_->query(event));
  std::atomic_ref{flag}.store(1);
  device_->synchronize(1);
  EXPECT_TRUE(device_->query(event));
  device_->release_event(event);
}

TEST_F(NullDeviceTest, CopiesAndFillsNothingForZeroBytes)
{
  device_->copy_async(0, 0, 0, CopyKind::device_to_device, 0);
  device_->fill_async(0, 1, 0, 0);
  device_->synchronize(0);
}

TEST_F(NullDeviceTest, FillsBytes)
{
  std::vector<std::uint8_t> bytes(1000);
  device_->fill_async(address_of(bytes.data()), 0xFF, bytes.size(), 0);
  device_->synchronize(0);
  EXPECT_EQ(bytes, std::vector<std::uint8_t>(1000, 0xFF));
}

TEST_F(NullDeviceTest, CopiesLastAtLeastTheDelay)
{
  device_->set_copy_delay(20'000'000);
  int const source = 1;
  int target       = 0;
  auto const start = std::chrono::steady_clock::now();
  copy(&target, &source, sizeof source, 0);
  device_->synchronize(0);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 20ms);
}

TEST_F(NullDeviceTest, AValueBlocksItsStreamOnly)
{
  std::uint32_t flag = 0;
  int const source   = 7;
  int blocked        = 0;
  int free_running   = 0;
  auto const first   = device_->create_stream(0);
  auto const second  = device_->create_stream(0);
  device_->wait_value32(first, address_of(&flag), 5);
  copy(&blocked, &source, sizeof source, first);
  copy(&free_running, &source, sizeof source, second);
  device_->synchronize(second);
  EXPECT_EQ(free_running, 7);
  auto const event = device_->acquire_event();
  device_->record(event, first);
  EXPECT_FALSE(device_->query(event));
  device_->write_value32(second, address_of(&flag), 5);
  device_->synchronize(first);
  EXPECT_EQ(blocked, 7);
  device_->release_event(event);
}

TEST_F(NullDeviceTest, GoesAwayWhileAStreamWaitsForAValueThatNeverComes)
{
  std::uint32_t flag = 0;
  int const source   = 7;
  int behind         = 0;
  int dependent      = 0;
  auto const first   = device_->create_stream(0);
  auto const second  = device_->create_stream(0);
  auto const event   = device_->acquire_event();
  device_->wait_value32(first, address_of(&flag), 1);
  copy(&behind, &source, sizeof source, first);
  device_->record(event, first);
  device_->wait_event(second, event);
  copy(&dependent, &source, sizeof source, second);
  device_ = nullptr;
  EXPECT_EQ(behind, 0);
  EXPECT_EQ(dependent, 0);
}

TEST_F(NullDeviceTest, FinishesAStreamThatIsDestroyedWithWorkInFlight)
{
  device_->set_copy_delay(5'000'000);
  int const source  = 3;
  int target        = 0;
  auto const stream = device_->create_stream(0);
  auto const event  = device_->acquire_event();
  copy(&target, &source, sizeof source, stream);
  device_->record(event, stream);
  device_->destroy_stream(stream);
  device_->synchronize_event(event);
  EXPECT_EQ(target, 3);
  device_->release_event(event);
}

TEST_F(NullDeviceTest, RefusesACopyThatRunsOverTheEndOfARegisteredRange)
{
  std::vector<std::byte> host(3000);
  std::vector<std::byte> other(3000);
  device_->register_host(host.data() + 500, 1000, false);
  device_->register_host(host.data() + 1500, 1000, false);
  auto const copy_of = [&](std::size_t from, std::size_t nbytes, CopyKind kind) {
    auto const mine = address_of(host.data() + from);
    auto const its  = address_of(other.data());
    return result_of([&] {
      kind == CopyKind::host_to_device ? device_->copy_async(its, mine, nbytes, kind, 0)
                                       : device_->copy_async(mine, its, nbytes, kind, 0);
    });
  };
  for (auto const kind : {CopyKind::host_to_device, CopyKind::device_to_host}) {
    EXPECT_EQ(copy_of(500, 1001, kind), cuda::error_invalid_value) << "into the next range";
    EXPECT_EQ(copy_of(2499, 2, kind), cuda::error_invalid_value) << "into plain memory";
    EXPECT_EQ(copy_of(500, 1000, kind), cuda::success);
    EXPECT_EQ(copy_of(1500, 1000, kind), cuda::success);
    EXPECT_EQ(copy_of(2500, 500, kind), cuda::success);
  }
  device_->synchronize(0);
  for (auto const from : {500, 1500}) { device_->unregister_host(host.data() + from); }
}

TEST_F(NullDeviceTest, RegistersExactRangesOnce)
{
  std::vector<std::byte> bytes(100'000);
  auto* const inside = bytes.data() + 10;
  EXPECT_EQ(device_->mapped_address(inside), 0U);
  EXPECT_EQ(device_->register_host(inside, 50'000, false), address_of(inside));
  EXPECT_EQ(device_->mapped_address(inside + 20'000), address_of(inside + 20'000));
  EXPECT_EQ(result_of([&] { device_->register_host(inside + 49'999, 1, false); }),
            cuda::error_host_memory_already_registered);
  auto const range = device_->registered_range(inside);
  EXPECT_EQ(range.start, address_of(inside));
  EXPECT_EQ(range.nbytes, 50'000U);
  EXPECT_EQ(device_->mapped_address(inside - 1), 0U);
  device_->register_host(inside - 10, 10, false);
  device_->register_host(inside + 50'000, 1, false);
  device_->unregister_host(inside);
  EXPECT_EQ(device_->registered_ranges(), 2U) << "of which each shares a page with the one undone";
  device_->unregister_host(inside - 10);
  device_->unregister_host(inside + 50'000);
  EXPECT_EQ(device_->mapped_address(inside), 0U);
  EXPECT_EQ(device_->registered_ranges(), 0U);
}

TEST_F(NullDeviceTest, RefusesToRegisterNothingAndReadOnlyAndUnmappedMemory)
{
  std::byte byte{};
  EXPECT_EQ(result_of([&] { device_->register_host(&byte, 0, false); }), cuda::error_invalid_value);
  Mapping memory{4 * page_bytes(), PROT_READ};
  EXPECT_EQ(result_of([&] { device_->register_host(memory.data(), memory.nbytes(), false); }),
            cuda::error_invalid_value);
  device_->register_host(memory.data(), memory.nbytes(), true);
  device_->unregister_host(memory.data());
  auto* const gone = memory.data();
  memory.unmap();
  EXPECT_EQ(result_of([&] { device_->register_host(gone, 1, true); }), cuda::error_invalid_value);
}

TEST_F(NullDeviceTest, ManyThreadsShareStreamsAndEvents)
{
  constexpr int threads = 8;
  constexpr int rounds  = 200;
  std::vector<std::vector<int>> targets(threads, std::vector<int>(rounds));
  std::vector<int> sources(rounds);
  std::iota(sources.begin(), sources.end(), 1);
  dp_stream const streams[] = {device_->create_stream(0), device_->create_stream(1), 0};
  std::vector<std::thread> workers;
  for (int thread = 0; thread < threads; ++thread) {
    workers.emplace_back([&, thread] {
      for (int round = 0; round < rounds; ++round) {
        auto const event = device_->acquire_event();
        auto const index = static_cast<std::size_t>(round);
        copy(&targets[static_cast<std::size_t>(thread)][index],
             &sources[index],
             sizeof(int),
             streams[round % 3]);
        device_->record(event, streams[round % 3]);
        device_->wait_event(streams[(round + 1) % 3], event);
        if (round % 7 == 0) { device_->synchronize_event(event); }
        device_->release_event(event);
      }
    });
  }
  for (auto& worker : workers) { worker.join(); }
  for (auto const stream : streams) { device_->synchronize(stream); }
  for (auto const& target : targets) { EXPECT_EQ(target, sources); }
}

}  // namespace
}  // namespace datapath::testing
