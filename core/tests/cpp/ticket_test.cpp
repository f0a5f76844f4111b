// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tickets by themselves, and what the C ABI says about them.
#include "support/ticket.hpp"

#include "device_support.hpp"

#include <datapath/datapath.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace datapath::testing {
namespace {

constexpr std::uint64_t forever = UINT64_MAX;

ErrorInfo some_error()
{ return ErrorInfo{DP_ERR_IO, "writing: no luck", "/some/file", 4096, EIO, 0}; }

dp_ticket* handle_of(Ref<Ticket> const& ticket)
{ return reinterpret_cast<dp_ticket*>(ticket.get()); }

TEST(TicketTest, ANewTicketIsPendingAndAWaitTimesOut)
{
  auto const ticket = make_ref<Ticket>();
  EXPECT_EQ(ticket->state(), DP_PENDING);
  EXPECT_FALSE(ticket->wait(0));
  EXPECT_FALSE(ticket->wait(1'000'000));
  EXPECT_FALSE(ticket->wait_host_part(0));
  EXPECT_EQ(dp_ticket_test(handle_of(ticket)), DP_PENDING);
  std::uint64_t nbytes = 7;
  EXPECT_EQ(dp_ticket_result(handle_of(ticket), 1000, &nbytes), DP_TIMEOUT);
  EXPECT_EQ(nbytes, 7U);
}

TEST(TicketTest, TheErrorIsReportedByEveryCallWithAllItsDetails)
{
  auto const ticket = make_ref<Ticket>();
  ticket->fail(some_error());
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(dp_ticket_result(handle_of(ticket), forever, nullptr), DP_ERR_IO);
    EXPECT_EQ(dp_ticket_test(handle_of(ticket)), DP_ERR_IO);
    dp_error_info info{};
    info.size = sizeof(info);
    dp_last_error(&info);
    EXPECT_EQ(info.status, DP_ERR_IO);
    EXPECT_EQ(info.os_errno, EIO);
    EXPECT_EQ(info.offset, 4096);
    EXPECT_STREQ(info.path, "/some/file");
    EXPECT_STREQ(info.message, "writing: no luck");
  }
}

TEST(TicketTest, TheFirstEndCounts)
{
  auto const good = make_ref<Ticket>();
  good->complete(12);
  good->fail(some_error());
  EXPECT_EQ(good->bytes(), 12U);
  auto const bad = make_ref<Ticket>();
  bad->fail(some_error());
  bad->complete(12);
  EXPECT_EQ(bad->state(), DP_ERR_IO);
}

TEST(TicketTest, AWaiterIsWokenByTheEnd)
{
  auto const ticket = make_ref<Ticket>();
  std::uint64_t nbytes{0};
  std::thread waiter{
    [&] { EXPECT_EQ(dp_ticket_result(handle_of(ticket), forever, &nbytes), DP_OK); }};
  ticket->complete(99);
  waiter.join();
  EXPECT_EQ(nbytes, 99U);
}

TEST(TicketTest, ContinuationsRunOnceWhetherTheyCameBeforeOrAfterTheEnd)
{
  auto const ticket = make_ref<Ticket>();
  int before        = 0;
  int after         = 0;
  ticket->on_end([&](Ticket const& ended) {
    EXPECT_EQ(ended.bytes(), 5U);
    ++before;
  });
  EXPECT_EQ(before, 0);
  ticket->complete(5);
  ticket->on_end([&](Ticket const&) { ++after; });
  EXPECT_EQ(before, 1);
  EXPECT_EQ(after, 1);
}

TEST(TicketTest, DeviceWorkEndsTheHostPartButNotTheTicket)
{
  auto const ticket = make_ref<Ticket>();
  EXPECT_FALSE(ticket->with_event([](Device&, std::uint64_t) {}));
  auto* const device = reinterpret_cast<Device*>(std::uintptr_t{64});
  ticket->enter_device(device, 3);
  EXPECT_TRUE(ticket->wait_host_part(forever));
  EXPECT_FALSE(ticket->wait(0));
  EXPECT_TRUE(ticket->with_event([&](Device& seen, std::uint64_t event) {
    EXPECT_EQ(&seen, device);
    EXPECT_EQ(event, 3U);
  }));
  ticket->complete(1);
  EXPECT_FALSE(ticket->with_event([](Device&, std::uint64_t) {}));
  // States only move forward.
  ticket->enter_device(device, 3);
  EXPECT_EQ(ticket->state(), DP_OK);
}

TEST(TicketTest, TheTicketEndsWhileSomebodyUsesItsEventAndTheEventIsReleasedAfterwards)
{
  auto const ticket = make_ref<Ticket>();
  ticket->enter_device(reinterpret_cast<Device*>(std::uintptr_t{64}), 3);
  bool released = false;
  EXPECT_TRUE(ticket->with_event([&](Device&, std::uint64_t) {
    // As the scheduler's thread does, while this one is held up in the driver.
    std::thread{[&] {
      ticket->complete(1);
      ticket->when_event_unused([&] { released = true; });
    }}.join();
    EXPECT_FALSE(released);
  }));
  EXPECT_TRUE(released);
  released = false;
  ticket->when_event_unused([&] { released = true; });
  EXPECT_TRUE(released);
}

TEST(TicketTest, NullIsRefusedAndReleasingItIsFine)
{
  EXPECT_EQ(dp_ticket_test(nullptr), DP_ERR_INVALID);
  EXPECT_EQ(dp_ticket_result(nullptr, 0, nullptr), DP_ERR_INVALID);
  EXPECT_EQ(dp_ticket_wait_stream(nullptr, nullptr, 0, 0, 0), DP_ERR_INVALID);
  dp_ticket_retain(nullptr);
  dp_ticket_release(nullptr);
  auto const ticket = make_ref<Ticket>();
  EXPECT_EQ(dp_ticket_wait_stream(handle_of(ticket), nullptr, 0, 0, 0), DP_ERR_INVALID);
}

TEST(TicketTest, AForkedChildIsTold)
{
  auto const ticket = make_ref<Ticket>();
  EXPECT_TRUE(in_child([&] {
    return dp_ticket_test(handle_of(ticket)) == DP_ERR_FORKED &&
           dp_ticket_result(handle_of(ticket), forever, nullptr) == DP_ERR_FORKED;
  }));
}

TEST(TicketTest, ManyWaitersAndOneEnd)
{
  for (int round = 0; round < 50; ++round) {
    auto ticket = make_ref<Ticket>();
    std::vector<std::thread> waiters;
    for (int index = 0; index < 4; ++index) {
      waiters.emplace_back([own = ticket] {
        EXPECT_TRUE(own->wait(forever));
        EXPECT_EQ(own->bytes(), 1U);
      });
    }
    std::thread ender{[own = ticket] { own->complete(1); }};
    ticket = nullptr;
    for (auto& waiter : waiters) { waiter.join(); }
    ender.join();
  }
}

}  // namespace
}  // namespace datapath::testing
