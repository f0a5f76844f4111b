// SPDX-License-Identifier: Apache-2.0
/// @file
/// Copies between host and device, pinned and pageable: the right bytes, the right lane, exact counts.
#include "device_support.hpp"
#include "scheduler_support.hpp"

#include <thread>

namespace datapath::testing {
namespace {

using SchedulerCopyTest = SchedulerTest;

TEST_F(SchedulerCopyTest, AMissingDeviceIsRefused)
{
  EXPECT_EQ(status_of([] { (void)make_ref<Scheduler>(Ref<Device>{}, SchedulerOptions{}); }),
            DP_ERR_INVALID);
}

TEST_F(SchedulerCopyTest, MemoryAtAddressZeroIsRefusedAndTheOwnerReleased)
{
  OwnerProbe probe;
  auto request     = move_bytes(host_place(nullptr), host_place(&probe), 1);
  request.owner    = probe.owner();
  auto const error = error_of([&] { (void)scheduler->transfer(std::move(request)); });
  request          = {};
  EXPECT_EQ(error.status, DP_ERR_INVALID);
  EXPECT_NE(error.message.find("destination"), std::string::npos);
  EXPECT_EQ(probe.released(), 1);
}

TEST_F(SchedulerCopyTest, EndsThatShareBytesAreRefused)
{
  Bytes bytes(100);
  EXPECT_EQ(status_of([&] {
              (void)scheduler->transfer(
                move_bytes(host_place(bytes.data() + 10), host_place(bytes.data()), 50));
            }),
            DP_ERR_INVALID);
}

TEST_F(SchedulerCopyTest, APlaceOfUnknownKindIsRefused)
{
  Bytes bytes(100);
  auto place = host_place(bytes.data());
  place.kind = 9;
  EXPECT_EQ(
    status_of([&] { (void)scheduler->transfer(move_bytes(place, host_place(bytes.data()), 50)); }),
    DP_ERR_INVALID);
}

TEST_F(SchedulerCopyTest, ZeroBytesEndWellBetweenAllPlaces)
{
  std::vector<Place> const places{host_place(nullptr), device_place(0)};
  for (auto const& destination : places) {
    for (auto const& source : places) {
      EXPECT_EQ(result(scheduler->transfer(move_bytes(destination, source, 0))), 0U);
    }
  }
}

TEST_F(SchedulerCopyTest, PinnedMemoryIsCopiedInOnePieceBothWays)
{
  auto const nbytes = 5 * chunk + 123;
  auto const wanted = random_bytes(nbytes, 1);
  PinnedBytes const source{device, nbytes};
  PinnedBytes const back{device, nbytes};
  DeviceMemory const memory{device, nbytes};
  std::copy(wanted.begin(), wanted.end(), source.data());

  EXPECT_EQ(
    result(scheduler->transfer(move_bytes(memory.place(), host_place(source.data()), nbytes))),
    nbytes);
  EXPECT_EQ(memory.bytes(), wanted);
  EXPECT_EQ(
    result(scheduler->transfer(move_bytes(host_place(back.data()), memory.place(), nbytes))),
    nbytes);
  EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), back.data()));

  auto const hops = trace_of(*scheduler);
  ASSERT_EQ(hops.size(), 2U);
  EXPECT_EQ(hops[0].lane, "h2d");
  EXPECT_EQ(hops[0].nbytes, nbytes);
  EXPECT_EQ(hops[1].lane, "d2h");
  EXPECT_EQ(hops[1].nbytes, nbytes);
}

TEST_F(SchedulerCopyTest, PageableMemoryPassesThroughChunksBothWays)
{
  auto const nbytes = 7 * chunk + 321;
  auto const wanted = random_bytes(nbytes, 2);
  Bytes back(nbytes);
  DeviceMemory const memory{device, nbytes};

  EXPECT_EQ(
    result(scheduler->transfer(move_bytes(memory.place(), host_place(wanted.data()), nbytes))),
    nbytes);
  EXPECT_EQ(memory.bytes(), wanted);
  EXPECT_EQ(
    result(scheduler->transfer(move_bytes(host_place(back.data()), memory.place(), nbytes))),
    nbytes);
  EXPECT_EQ(back, wanted);
  EXPECT_EQ(scheduler->lane_stats(DP_LANE_H2D).bytes, nbytes);
  EXPECT_EQ(scheduler->lane_stats(DP_LANE_D2H).bytes, nbytes);
  EXPECT_EQ(scheduler->lane_stats(DP_LANE_H2D).transfers, 1U);
}

TEST_F(SchedulerCopyTest, MemoryThatIsOnlyPartlyPinnedIsStaged)
{
  auto const nbytes = 4 * chunk;
  Mapping const source{nbytes};
  auto const wanted = random_bytes(nbytes, 3);
  std::copy(wanted.begin(), wanted.end(), source.data());
  (void)device->register_host(source.data(), chunk, false);
  DeviceMemory const memory{device, nbytes};
  EXPECT_EQ(
    result(scheduler->transfer(move_bytes(memory.place(), host_place(source.data()), nbytes))),
    nbytes);
  EXPECT_EQ(memory.bytes(), wanted);
  EXPECT_GT(trace_of(*scheduler).size(), 1U);
  device->unregister_host(source.data());
}

TEST_F(SchedulerCopyTest, ACopyOverSeveralRegistrationsIsStillRight)
{
  auto const nbytes = 4 * chunk;
  Mapping const source{nbytes};
  auto const wanted = random_bytes(nbytes, 4);
  std::copy(wanted.begin(), wanted.end(), source.data());
  for (auto const offset : {std::uint64_t{0}, chunk, 3 * chunk}) {
    (void)device->register_host(source.data() + offset, offset == chunk ? 2 * chunk : chunk, false);
  }
  DeviceMemory const memory{device, nbytes};
  EXPECT_EQ(result(scheduler->transfer(
              move_bytes(memory.place(), host_place(source.data() + 100), nbytes - 100))),
            nbytes - 100);
  EXPECT_TRUE(std::equal(wanted.begin() + 100, wanted.end(), memory.data()));
  for (auto const offset : {std::uint64_t{0}, chunk, 3 * chunk}) {
    device->unregister_host(source.data() + offset);
  }
}

TEST_F(SchedulerCopyTest, HostToHostAndDeviceToDeviceMoveTheBytes)
{
  auto const nbytes = 3 * chunk + 1;
  auto const wanted = random_bytes(nbytes, 5);
  Bytes copy(nbytes);
  EXPECT_EQ(result(scheduler->transfer(
              move_bytes(host_place(copy.data()), host_place(wanted.data()), nbytes))),
            nbytes);
  EXPECT_EQ(copy, wanted);

  DeviceMemory const from{device, nbytes};
  DeviceMemory const to{device, nbytes};
  std::copy(wanted.begin(), wanted.end(), from.data());
  EXPECT_EQ(result(scheduler->transfer(move_bytes(to.place(), from.place(), nbytes))), nbytes);
  EXPECT_EQ(to.bytes(), wanted);
  EXPECT_EQ(scheduler->lane_stats(DP_LANE_KERNEL).bytes, nbytes);
}

TEST_F(SchedulerCopyTest, AnOwnerIsReleasedOnceAndBeforeTheTicketEnds)
{
  OwnerProbe probe;
  PinnedBytes const source{device, 100};
  DeviceMemory const memory{device, 100};
  StreamGate gate{device, scheduler->stream(DP_LANE_H2D)};
  auto request      = move_bytes(memory.place(), host_place(source.data()), 100);
  request.owner     = probe.owner();
  auto const ticket = scheduler->transfer(std::move(request));
  EXPECT_FALSE(ticket->wait(5'000'000));
  EXPECT_EQ(probe.released(), 0);
  gate.open();
  EXPECT_EQ(result(ticket), 100U);
  EXPECT_EQ(probe.released(), 1);
  scheduler->close();
  EXPECT_EQ(probe.released(), 1);
}

TEST_F(SchedulerCopyTest, ManyThreadsSubmitAtOnce)
{
  constexpr int threads          = 6;
  constexpr int transfers        = 150;
  constexpr std::uint64_t nbytes = 3000;
  auto const wanted              = random_bytes(nbytes * threads, 6);
  DeviceMemory const memory{device, nbytes * threads * transfers};
  std::atomic<int> good{0};
  std::vector<std::thread> workers;
  for (int thread = 0; thread < threads; ++thread) {
    workers.emplace_back([&, thread] {
      std::vector<Ref<Ticket>> tickets;
      auto const* const source = wanted.data() + static_cast<std::uint64_t>(thread) * nbytes;
      for (int index = 0; index < transfers; ++index) {
        auto const at = static_cast<std::uint64_t>(thread * transfers + index) * nbytes;
        tickets.push_back(
          scheduler->transfer(move_bytes(memory.place(at), host_place(source), nbytes)));
      }
      for (auto const& ticket : tickets) {
        if (result(ticket) == nbytes) { good.fetch_add(1); }
      }
    });
  }
  for (auto& worker : workers) { worker.join(); }
  EXPECT_EQ(good.load(), threads * transfers);
  for (std::uint64_t index = 0; index < threads * transfers; ++index) {
    auto const* const source = wanted.data() + index / transfers * nbytes;
    ASSERT_TRUE(std::equal(source, source + nbytes, memory.data() + index * nbytes)) << index;
  }
  auto const stats = scheduler->lane_stats(DP_LANE_H2D);
  EXPECT_EQ(stats.transfers, static_cast<std::uint64_t>(threads * transfers));
  EXPECT_EQ(stats.bytes, nbytes * threads * transfers);
  EXPECT_EQ(stats.queued, 0U);
  EXPECT_EQ(stats.inflight_bytes, 0U);
}

TEST_F(SchedulerCopyTest, OnlyDeviceLanesHaveStreams)
{
  EXPECT_NE(scheduler->stream(DP_LANE_H2D), scheduler->stream(DP_LANE_D2H));
  EXPECT_NE(scheduler->stream(DP_LANE_KERNEL), 0U);
  EXPECT_EQ(status_of([&] { (void)scheduler->stream(DP_LANE_READ); }), DP_ERR_INVALID);
  EXPECT_EQ(status_of([&] { (void)scheduler->lane_stats(5); }), DP_ERR_INVALID);
}

}  // namespace
}  // namespace datapath::testing
