// SPDX-License-Identifier: Apache-2.0
/// @file
/// The end of a scheduler: closed, dropped, forked, or alive while the process exits.
#include "device_support.hpp"
#include "scheduler_support.hpp"

namespace datapath::testing {
namespace {

class SchedulerCloseTest : public SchedulerTest {
 protected:
  static constexpr std::uint64_t nbytes = 6 * chunk;

  [[nodiscard]] Ref<Ticket> load()
  { return scheduler->transfer(move_bytes(memory.place(), host_place(source.data()), nbytes)); }

  Bytes const source = random_bytes(nbytes, 1);
  DeviceMemory memory{device, nbytes};
};

TEST_F(SchedulerCloseTest, CloseWaitsForWhatIsInFlight)
{
  device->set_copy_delay(3'000'000);
  auto const first  = load();
  auto const second = load();
  scheduler->close();
  EXPECT_EQ(first->state(), DP_OK);
  EXPECT_EQ(second->state(), DP_OK);
  EXPECT_EQ(memory.bytes(), source);
}

TEST_F(SchedulerCloseTest, AClosedSchedulerRefusesTransfersAndStreamsButStillKnowsItsCounts)
{
  EXPECT_EQ(result(load()), nbytes);
  scheduler->close();
  scheduler->close();
  EXPECT_EQ(status_of([&] { (void)load(); }), DP_ERR_CLOSED);
  EXPECT_EQ(status_of([&] { (void)scheduler->stream(DP_LANE_H2D); }), DP_ERR_CLOSED);
  EXPECT_EQ(scheduler->lane_stats(DP_LANE_H2D).bytes, nbytes);
  EXPECT_NE(scheduler->describe().find("\"closed\":true"), std::string::npos);
}

TEST_F(SchedulerCloseTest, WhatCannotStartFailsWithinTheTimeout)
{
  OwnerProbe probe;
  auto const never      = make_ref<Ticket>();
  auto request          = move_bytes(memory.place(), host_place(source.data()), nbytes);
  request.after_tickets = {never};
  request.owner         = probe.owner();
  auto const ticket     = scheduler->transfer(std::move(request));
  set_setting("streams.close_timeout", "0.05");
  scheduler->close();
  set_setting("streams.close_timeout", nullptr);
  EXPECT_EQ(status(ticket), DP_ERR_CLOSED);
  EXPECT_EQ(probe.released(), 1);
  EXPECT_EQ(scheduler->lane_stats(DP_LANE_H2D).queued, 0U);
  // It comes too late, and nobody minds.
  never->complete(0);
}

TEST_F(SchedulerCloseTest, DroppingASchedulerLosesNothingInFlight)
{
  device->set_copy_delay(3'000'000);
  OwnerProbe probe;
  auto request      = move_bytes(memory.place(), host_place(source.data()), nbytes);
  request.owner     = probe.owner();
  auto const ticket = scheduler->transfer(std::move(request));
  scheduler         = nullptr;
  EXPECT_EQ(result(ticket), nbytes);
  EXPECT_EQ(memory.bytes(), source);
  EXPECT_EQ(probe.released(), 1);
}

TEST_F(SchedulerCloseTest, DroppingTheTicketLosesNothingEither)
{
  OwnerProbe probe;
  device->set_copy_delay(1'000'000);
  auto request  = move_bytes(memory.place(), host_place(source.data()), nbytes);
  request.owner = probe.owner();
  (void)scheduler->transfer(std::move(request));
  scheduler->close();
  EXPECT_EQ(memory.bytes(), source);
  EXPECT_EQ(probe.released(), 1);
}

TEST_F(SchedulerCloseTest, AnEndedTicketKeepsNoMemoryOfItsScheduler)
{
  auto const pool = [&] {
    PoolOptions options;
    options.device = device;
    return make_ref<Pool>(options);
  }();
  auto options      = small();
  options.pool      = pool;
  scheduler         = make_ref<Scheduler>(device, options);
  auto const ticket = load();
  EXPECT_EQ(result(ticket), nbytes);
  EXPECT_GT(pool->stats().allocated, 0U);
  scheduler->close();
  EXPECT_EQ(pool->stats().allocated, 0U);
}

TEST_F(SchedulerCloseTest, AForkedChildIsToldSoAndMayMakeItsOwn)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer's own locks may be held for ever in a forked child with threads";
#endif
  device->set_copy_delay(1'000'000);
  auto const ticket = load();
  EXPECT_TRUE(in_child([&] {
    auto const own_device = make_ref<NullDevice>();
    auto const own        = make_ref<Scheduler>(own_device, small());
    DeviceMemory const to{own_device, nbytes};
    auto const moved = own->transfer(move_bytes(to.place(), host_place(source.data()), nbytes));
    auto const good  = moved->wait(patience_ns) && moved->bytes() == nbytes;
    own->close();
    auto const refused = status_of([&] { (void)load(); }) == DP_ERR_FORKED &&
                         status_of([&] { scheduler->close(); }) == DP_ERR_FORKED &&
                         status_of([&] { (void)scheduler->describe(); }) == DP_ERR_FORKED &&
                         status_of([&] { ticket->check_usable(); }) == DP_ERR_FORKED;
    scheduler          = nullptr;
    return good && refused;
  }));
  EXPECT_EQ(result(ticket), nbytes);
}

using SchedulerCloseDeathTest = SchedulerCloseTest;

TEST_F(SchedulerCloseDeathTest, AProcessExitsWhileTransfersAreInFlight)
{
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
    {
      device->set_copy_delay(200'000'000);
      for (int index = 0; index < 4; ++index) { (void)load(); }
      std::exit(0);
    },
    ::testing::ExitedWithCode(0),
    "");
}

}  // namespace
}  // namespace datapath::testing
