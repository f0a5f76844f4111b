// SPDX-License-Identifier: Apache-2.0
/// @file
/// Uses of memory by streams whose handles the driver gives to other streams.
#include "memory/uses.hpp"

#include "device_support.hpp"
#include "streams/null_device.hpp"

#include <gtest/gtest.h>

#include <atomic>

namespace datapath::testing {
namespace {

/// Any handle means the stream that the test has chosen.
class RecyclingDevice : public NullDevice {
 public:
  [[nodiscard]] bool is_capturing(dp_stream) override { return false; }
  void record(EventHandle event, dp_stream) override { NullDevice::record(event, chosen); }
  void wait_event(dp_stream, EventHandle event) override { NullDevice::wait_event(chosen, event); }

  dp_stream chosen{0};
};

class UsesTest : public ::testing::Test {
 protected:
  static constexpr dp_stream handle = 77;

  ~UsesTest() override
  {
    open();
    device->synchronize(held);
    device->synchronize(idle);
  }
  void open() { std::atomic_ref{word}.store(1); }

  Ref<RecyclingDevice> device = make_ref<RecyclingDevice>();
  dp_stream held              = device->create_stream(0);
  dp_stream idle              = device->create_stream(0);
  std::uint32_t word{0};
  UseRecorder recorder;
};

TEST_F(UsesTest, WorkOfADestroyedStreamIsWaitedForAfterItsHandleBecameAnotherStreams)
{
  device->wait_value32(held, address_of(&word), 1);
  device->chosen = held;
  recorder.record(*device, handle);
  device->chosen = idle;
  recorder.record(*device, handle);
  device->synchronize(idle);
  auto uses = recorder.take();
  EXPECT_EQ(uses.poll(), PendingUses::State::pending);
  open();
  uses.wait();
  EXPECT_EQ(uses.poll(), PendingUses::State::passed);
}

TEST_F(UsesTest, WhatIsPutBehindTheOldestUseWaitsForBoth)
{
  std::uint32_t other{0};
  device->wait_value32(held, address_of(&word), 1);
  device->wait_value32(idle, address_of(&other), 1);
  device->chosen = held;
  recorder.record(*device, handle);
  device->chosen = idle;
  for (int i = 0; i < 100; ++i) { recorder.record(*device, handle); }
  auto uses = recorder.take();
  std::atomic_ref{other}.store(1);
  EXPECT_EQ(uses.poll(), PendingUses::State::pending);
  open();
  uses.wait();
  device->synchronize(held);
  EXPECT_EQ(uses.poll(), PendingUses::State::passed);
}

}  // namespace
}  // namespace datapath::testing
