// SPDX-License-Identifier: Apache-2.0
#include "device_support.hpp"
#include "shim/cuda_types.hpp"
#include "streams/null_device.hpp"

#include <gtest/gtest.h>

#include <atomic>

namespace datapath::testing {
namespace {

class NullEventTest : public ::testing::Test {
 protected:
  Ref<NullDevice> device_ = make_ref<NullDevice>();
  dp_stream first_        = device_->create_stream(0);
  dp_stream second_       = device_->create_stream(0);
  std::uint32_t flag_{0};
  EventHandle event_ = device_->acquire_event();

  ~NullEventTest() override { std::atomic_ref{flag_}.store(1); }

  void block(dp_stream stream) { device_->wait_value32(stream, address_of(&flag_), 1); }
  void unblock() { std::atomic_ref{flag_}.store(1); }
};

TEST_F(NullEventTest, WithoutARecordCountsAsPassed)
{
  EXPECT_TRUE(device_->query(event_));
  device_->synchronize_event(event_);
  device_->wait_event(first_, event_);
  device_->synchronize(first_);
}

TEST_F(NullEventTest, PassesWhenTheWorkBeforeItIsDone)
{
  block(first_);
  device_->record(event_, first_);
  EXPECT_FALSE(device_->query(event_));
  unblock();
  device_->synchronize_event(event_);
  EXPECT_TRUE(device_->query(event_));
}

TEST_F(NullEventTest, AWaitHoldsTheStreamBack)
{
  block(first_);
  device_->record(event_, first_);
  device_->wait_event(second_, event_);
  auto const behind = device_->acquire_event();
  device_->record(behind, second_);
  EXPECT_FALSE(device_->query(behind));
  unblock();
  device_->synchronize(second_);
  EXPECT_TRUE(device_->query(behind));
}

TEST_F(NullEventTest, AWaitKeepsTheRecordOfItsCall)
{
  device_->record(event_, second_);
  device_->synchronize(second_);
  device_->wait_event(second_, event_);
  // Recorded again behind blocked work: the wait above does not move.
  block(first_);
  device_->record(event_, first_);
  device_->synchronize(second_);
  EXPECT_FALSE(device_->query(event_));
}

TEST_F(NullEventTest, ReleasedWhilePendingIsNotHandedOutAsPending)
{
  block(first_);
  device_->record(event_, first_);
  device_->release_event(event_);
  auto const fresh = device_->acquire_event();
  EXPECT_TRUE(device_->query(fresh));
}

class NullCaptureTest : public NullEventTest {
 protected:
  ~NullCaptureTest() override = default;
};

TEST_F(NullCaptureTest, IsRefusedOnTheDefaultStreamAndTwiceAndUnbegun)
{
  EXPECT_EQ(result_of([&] { device_->begin_capture(0); }), cuda::error_stream_capture_unsupported);
  EXPECT_EQ(result_of([&] { device_->end_capture(first_); }), cuda::error_illegal_state);
  device_->begin_capture(first_);
  EXPECT_EQ(result_of([&] { device_->begin_capture(first_); }), cuda::error_illegal_state);
}

TEST_F(NullCaptureTest, IsSeenAndExecutesNothing)
{
  int const source = 1;
  int target       = 0;
  device_->begin_capture(first_);
  EXPECT_TRUE(device_->is_capturing(first_));
  EXPECT_FALSE(device_->is_capturing(second_));
  device_->copy_async(
    address_of(&target), address_of(&source), sizeof source, CopyKind::host_to_device, first_);
  EXPECT_EQ(result_of([&] { device_->synchronize(first_); }),
            cuda::error_stream_capture_unsupported);
  device_->end_capture(first_);
  EXPECT_FALSE(device_->is_capturing(first_));
  device_->synchronize(first_);
  EXPECT_EQ(target, 0);
}

TEST_F(NullCaptureTest, ItsEventsCannotBeAsked)
{
  device_->begin_capture(first_);
  device_->record(event_, first_);
  EXPECT_EQ(result_of([&] { (void)device_->query(event_); }), cuda::error_captured_event);
  device_->end_capture(first_);
  EXPECT_EQ(result_of([&] { device_->wait_event(second_, event_); }), cuda::error_captured_event);
  device_->record(event_, second_);
  device_->synchronize_event(event_);
}

TEST_F(NullCaptureTest, ReachesStreamsThatWaitForItsEvents)
{
  device_->begin_capture(first_);
  device_->record(event_, first_);
  device_->wait_event(second_, event_);
  EXPECT_TRUE(device_->is_capturing(second_));
  EXPECT_EQ(result_of([&] { device_->end_capture(second_); }),
            cuda::error_stream_capture_unmatched);
  device_->end_capture(first_);
  EXPECT_FALSE(device_->is_capturing(second_));
}

TEST_F(NullCaptureTest, CannotWaitForWorkOutside)
{
  device_->record(event_, second_);
  device_->begin_capture(first_);
  EXPECT_EQ(result_of([&] { device_->wait_event(first_, event_); }),
            cuda::error_stream_capture_isolation);
}

}  // namespace
}  // namespace datapath::testing
