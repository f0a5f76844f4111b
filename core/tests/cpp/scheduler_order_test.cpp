// SPDX-License-Identifier: Apache-2.0
/// @file
/// What goes first, and how much goes at once.
#include "device_support.hpp"
#include "scheduler_support.hpp"
#include "streams/clock.hpp"

namespace datapath::testing {
namespace {

class SchedulerOrderTest : public SchedulerTest {
 protected:
  static constexpr std::uint64_t nbytes = chunk;

  SchedulerOrderTest()
  {
    auto options    = small();
    options.credits = nbytes;  // one at a time
    scheduler       = make_ref<Scheduler>(device, options);
  }

  /// Holds the lane with a first transfer, so that what is submitted meanwhile is ordered by the queue alone.
  void hold()
  {
    gate = std::make_unique<StreamGate>(device, scheduler->stream(DP_LANE_H2D));
    held = submit(0, 0);
    while (scheduler->lane_stats(DP_LANE_H2D).inflight_bytes == 0) { std::this_thread::yield(); }
  }

  Ref<Ticket> submit(std::int32_t priority, std::uint64_t deadline)
  {
    auto request     = move_bytes(memory.place(), host_place(source.data()), nbytes);
    request.priority = priority;
    request.deadline = deadline;
    return scheduler->transfer(std::move(request));
  }

  std::vector<std::uint64_t> order_of_h2d()
  {
    std::vector<std::uint64_t> order;
    for (auto const& hop : trace_of(*scheduler)) {
      if (hop.lane == "h2d") { order.push_back(hop.transfer); }
    }
    return order;
  }

  DeviceMemory memory{device, nbytes};
  PinnedBytes source{device, nbytes};
  Ref<Ticket> held;
  std::unique_ptr<StreamGate> gate;
};

TEST_F(SchedulerOrderTest, HigherPrioritiesGoFirstThenEarlierDeadlinesThenFirstCome)
{
  auto const later  = monotonic_now() + 3'000'000'000U;
  auto const sooner = later - 1'000'000'000U;
  hold();  // 0
  std::vector<Ref<Ticket>> tickets;
  tickets.push_back(submit(0, 0));        // 1
  tickets.push_back(submit(0, 0));        // 2
  tickets.push_back(submit(0, later));    // 3
  tickets.push_back(submit(0, sooner));   // 4
  tickets.push_back(submit(5, 0));        // 5
  tickets.push_back(submit(-1, sooner));  // 6
  tickets.push_back(submit(5, later));    // 7
  EXPECT_EQ(held->state(), DP_PENDING);
  gate->open();
  for (auto const& ticket : tickets) { EXPECT_EQ(result(ticket), nbytes); }
  EXPECT_EQ(order_of_h2d(), (std::vector<std::uint64_t>{0, 7, 5, 4, 3, 1, 2, 6}));
}

TEST_F(SchedulerOrderTest, QueuedTransfersAreCounted)
{
  hold();
  std::vector<Ref<Ticket>> tickets;
  for (int index = 0; index < 5; ++index) { tickets.push_back(submit(0, 0)); }
  // The scheduler's thread takes them in by and by; none may start.
  EXPECT_EQ(scheduler->lane_stats(DP_LANE_H2D).queued, 5U);
  gate->open();
  for (auto const& ticket : tickets) { EXPECT_EQ(result(ticket), nbytes); }
  EXPECT_EQ(scheduler->lane_stats(DP_LANE_H2D).queued, 0U);
}

TEST_F(SchedulerOrderTest, TransfersThatMissTheirDeadlineAreCounted)
{
  EXPECT_EQ(result(submit(0, 1)), nbytes);
  EXPECT_EQ(result(submit(0, monotonic_now() + 60'000'000'000U)), nbytes);
  EXPECT_EQ(result(submit(0, 0)), nbytes);
  EXPECT_EQ(scheduler->lane_stats(DP_LANE_H2D).late, 1U);
}

TEST_F(SchedulerOrderTest, BytesInFlightStayWithinTheCredits)
{
  auto options    = small();
  options.credits = 3 * nbytes;
  scheduler       = make_ref<Scheduler>(device, options);
  device->set_copy_delay(2'000'000);
  std::vector<Ref<Ticket>> tickets;
  for (int index = 0; index < 12; ++index) { tickets.push_back(submit(0, 0)); }
  for (auto const& ticket : tickets) { EXPECT_EQ(result(ticket), nbytes); }
  EXPECT_NE(scheduler->describe().find("\"peak_inflight_bytes\":" + std::to_string(3 * nbytes)),
            std::string::npos)
    << scheduler->describe();
}

TEST_F(SchedulerOrderTest, ATransferLargerThanTheCreditsGoesAlone)
{
  auto const large = 10 * nbytes;
  DeviceMemory const target{device, large};
  PinnedBytes const big{device, large};
  hold();
  auto const first = scheduler->transfer(move_bytes(target.place(), host_place(big.data()), large));
  auto const second = submit(0, 0);
  gate->open();
  EXPECT_EQ(result(first), large);
  EXPECT_EQ(result(second), nbytes);
  auto const hops = trace_of(*scheduler);
  ASSERT_EQ(hops.size(), 3U);
  EXPECT_GE(hops[1].start, hops[0].end);
  EXPECT_GE(hops[2].start, hops[1].end);
}

TEST_F(SchedulerOrderTest, BusyTimeCoversWorkInFlightOnly)
{
  device->set_copy_delay(5'000'000);
  EXPECT_EQ(result(submit(0, 0)), nbytes);
  auto const busy = scheduler->lane_stats(DP_LANE_H2D).busy;
  auto const hops = trace_of(*scheduler);
  EXPECT_EQ(busy, hops[0].end - hops[0].start);
  std::this_thread::sleep_for(std::chrono::milliseconds{2});
  EXPECT_EQ(scheduler->lane_stats(DP_LANE_H2D).busy, busy);
}

}  // namespace
}  // namespace datapath::testing
