// SPDX-License-Identifier: Apache-2.0
/// @file
/// Transfers with a disk at one end or both: bytes, pipelining, short files, errors at every hop.
#include "device_support.hpp"
#include "scheduler_support.hpp"

#include <algorithm>
#include <map>

namespace datapath::testing {
namespace {

class SchedulerDiskTest : public SchedulerTest {
 protected:
  ScratchDirectory scratch;
  Ref<Engine> engine = make_engine();

  [[nodiscard]] Ref<File> open(std::string const& name,
                               char const* mode,
                               Ref<Engine> const& by) const
  { return by->open(scratch.file(name), mode); }
  [[nodiscard]] Ref<File> open(std::string const& name, char const* mode) const
  { return open(name, mode, engine); }
};

TEST_F(SchedulerDiskTest, DeviceMemoryGoesToAFileAndComesBack)
{
  auto const nbytes = 9 * chunk + 777;
  auto const wanted = random_bytes(nbytes, 1);
  DeviceMemory const from{device, nbytes};
  DeviceMemory const to{device, nbytes};
  std::copy(wanted.begin(), wanted.end(), from.data());
  auto const file = open("f", "w+");
  EXPECT_EQ(result(scheduler->transfer(move_bytes(file_place(file), from.place(), nbytes))),
            nbytes);
  EXPECT_EQ(read_whole(scratch.file("f")), wanted);
  EXPECT_EQ(result(scheduler->transfer(move_bytes(to.place(), file_place(file), nbytes))), nbytes);
  EXPECT_EQ(to.bytes(), wanted);
  for (auto const lane : {DP_LANE_D2H, DP_LANE_WRITE, DP_LANE_READ, DP_LANE_H2D}) {
    EXPECT_EQ(scheduler->lane_stats(lane).bytes, nbytes) << lane;
    EXPECT_EQ(scheduler->lane_stats(lane).transfers, 1U) << lane;
  }
}

TEST_F(SchedulerDiskTest, TheNextChunksMoveWhileOneIsWritten)
{
  auto const nbytes = 6 * chunk;
  DeviceMemory const from{device, nbytes};
  // The first write to be looked at does not end at all.
  auto const lossy = make_engine("write:lost@nth=1", 1);
  auto const ticket =
    scheduler->transfer(move_bytes(file_place(open("f", "w", lossy)), from.place(), nbytes));
  wait_until([&] {
    return scheduler->lane_stats(DP_LANE_D2H).bytes == nbytes &&
           scheduler->lane_stats(DP_LANE_WRITE).bytes == nbytes - chunk;
  });
  EXPECT_EQ(ticket->state(), DP_PENDING);
  std::map<std::uint64_t, Hop> copies;
  std::map<std::uint64_t, Hop> writes;
  for (auto const& hop : trace_of(*scheduler)) {
    (hop.lane == "d2h" ? copies : writes)[hop.offset] = hop;
  }
  ASSERT_EQ(copies.size(), 6U);
  ASSERT_EQ(writes.size(), 5U);
  auto freed = UINT64_MAX;
  for (auto const& [offset, write] : writes) {
    EXPECT_GE(write.start, copies.at(offset).end);
    freed = std::min(freed, write.end);
  }
  // Three chunks: never more than three pieces at once.
  for (std::uint64_t piece = 3; piece < 6; ++piece) {
    EXPECT_GE(copies.at(piece * chunk).start, freed);
  }
  set_setting("streams.close_timeout", "0.05");
  EXPECT_EQ(status_of([&] { scheduler->close(); }), DP_ERR_IO);
  set_setting("streams.close_timeout", nullptr);
  scheduler = nullptr;
}

TEST_F(SchedulerDiskTest, TheNextChunksAreReadWhileOneIsCopied)
{
  auto const nbytes = 6 * chunk;
  auto const wanted = random_bytes(nbytes, 2);
  write_whole(scratch.file("f"), wanted);
  DeviceMemory const to{device, nbytes};
  StreamGate gate{device, scheduler->stream(DP_LANE_H2D)};
  auto const ticket =
    scheduler->transfer(move_bytes(to.place(), file_place(open("f", "r")), nbytes));
  // No copy ends, yet all three chunks are filled.
  wait_until([&] { return scheduler->lane_stats(DP_LANE_READ).bytes == 3 * chunk; });
  EXPECT_EQ(scheduler->lane_stats(DP_LANE_H2D).bytes, 0U);
  gate.open();
  EXPECT_EQ(result(ticket), nbytes);
  EXPECT_EQ(to.bytes(), wanted);
}

TEST_F(SchedulerDiskTest, AfterErrorsOfEveryKindNothingStaysPinned)
{
  constexpr std::uint64_t nbytes = 6 * chunk;
  write_whole(scratch.file("f"), random_bytes(nbytes, 7));
  DeviceMemory const memory{device, nbytes};
  PoolOptions limits;
  limits.device   = device;
  auto const pool = make_ref<Pool>(limits);
  for (auto const& [fault, outcome] : {std::pair{"any:eio@after=2", DP_ERR_IO},
                                       std::pair{"any:enospc@after=2", DP_ERR_NO_SPACE},
                                       std::pair{"any:short@every=2", DP_OK}}) {
    auto const faulty = make_engine(fault);
    auto buffer       = pool->allocate(nbytes);
    auto const pinned = host_place(buffer->data());
    for (auto const& [to, from] : {std::pair{memory.place(), file_place(open("f", "r", faulty))},
                                   std::pair{file_place(open("g", "w", faulty)), memory.place()},
                                   std::pair{pinned, file_place(open("f", "r", faulty))},
                                   std::pair{file_place(open("g", "w", faulty)), pinned}}) {
      auto request  = move_bytes(to, from, nbytes);
      request.owner = Owner{
        {[](void* held) { static_cast<Buffer*>(held)->release(); }, Ref<Buffer>{buffer}.leak()}};
      EXPECT_EQ(status(scheduler->transfer(std::move(request))), outcome) << fault;
    }
    buffer = nullptr;
    EXPECT_EQ(pool->stats().allocated, 0U) << fault;
  }
  EXPECT_GT(device->registered_ranges(), 0U);
  scheduler->close();
  EXPECT_GT(pool->trim(), 0U);
  EXPECT_EQ(device->registered_ranges(), 0U);
}

TEST_F(SchedulerDiskTest, HostMemoryGoesStraightToAFileAndBack)
{
  auto const nbytes = 5 * chunk + 13;
  auto const wanted = random_bytes(nbytes, 3);
  Bytes back(nbytes);
  auto const file = open("f", "w+");
  EXPECT_EQ(result(scheduler->transfer(
              move_bytes(file_place(file, 100), host_place(wanted.data()), nbytes))),
            nbytes);
  EXPECT_EQ(
    result(scheduler->transfer(move_bytes(host_place(back.data()), file_place(file, 100), nbytes))),
    nbytes);
  EXPECT_EQ(back, wanted);
  for (auto const& hop : trace_of(*scheduler)) {
    EXPECT_TRUE(hop.lane == "write" || hop.lane == "read") << hop.lane;
  }
}

TEST_F(SchedulerDiskTest, AFileGoesToAnotherFile)
{
  auto const nbytes = 7 * chunk + 5;
  auto const wanted = random_bytes(nbytes, 4);
  write_whole(scratch.file("a"), wanted);
  EXPECT_EQ(result(scheduler->transfer(
              move_bytes(file_place(open("b", "w")), file_place(open("a", "r")), nbytes))),
            nbytes);
  EXPECT_EQ(read_whole(scratch.file("b")), wanted);
}

TEST_F(SchedulerDiskTest, AFileThatEndsEarlyIsAShortCountAndLeavesTheRestUntouched)
{
  auto const there  = 2 * chunk + 100;
  auto const asked  = 8 * chunk;
  auto const wanted = random_bytes(there, 5);
  write_whole(scratch.file("f"), wanted);
  auto const file = open("f", "r");
  DeviceMemory const memory{device, asked};
  Bytes host(asked);
  EXPECT_EQ(result(scheduler->transfer(move_bytes(memory.place(), file_place(file), asked))),
            there);
  EXPECT_EQ(
    result(scheduler->transfer(move_bytes(host_place(host.data()), file_place(file), asked))),
    there);
  EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), memory.data()));
  EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), host.begin()));
  auto const untouched = [](std::byte byte) { return byte == std::byte{0}; };
  EXPECT_TRUE(std::all_of(memory.data() + there, memory.data() + asked, untouched));
  EXPECT_TRUE(
    std::all_of(host.begin() + static_cast<std::ptrdiff_t>(there), host.end(), untouched));
  EXPECT_EQ(result(scheduler->transfer(move_bytes(memory.place(), file_place(file, asked), 10))),
            0U);
}

TEST_F(SchedulerDiskTest, AWriteErrorEndsTheTransferWithTheErrorAndReleasesTheOwnerOnce)
{
  auto const nbytes = 12 * chunk;
  auto const faulty = make_engine("write:enospc@after=4");
  DeviceMemory const from{device, nbytes};
  OwnerProbe probe;
  auto request      = move_bytes(file_place(open("f", "w", faulty)), from.place(), nbytes);
  request.owner     = probe.owner();
  auto const ticket = scheduler->transfer(std::move(request));
  EXPECT_EQ(status(ticket), DP_ERR_NO_SPACE);
  EXPECT_EQ(error_of([&] { (void)ticket->bytes(); }).os_errno, ENOSPC);
  EXPECT_EQ(probe.released(), 1);
  // All chunks are back: another transfer goes through the same scheduler.
  auto const again = open("g", "w");
  EXPECT_EQ(result(scheduler->transfer(move_bytes(file_place(again), from.place(), nbytes))),
            nbytes);
  EXPECT_NE(scheduler->describe().find("\"in_use\":0"), std::string::npos);
}

TEST_F(SchedulerDiskTest, AReadErrorEndsEveryKindOfTransferWithTheError)
{
  auto const nbytes = 6 * chunk;
  write_whole(scratch.file("f"), random_bytes(nbytes, 6));
  auto const faulty = make_engine("read:eio@after=2");
  DeviceMemory const memory{device, nbytes};
  Bytes host(nbytes);
  EXPECT_EQ(status(scheduler->transfer(
              move_bytes(memory.place(), file_place(open("f", "r", faulty)), nbytes))),
            DP_ERR_IO);
  EXPECT_EQ(status(scheduler->transfer(
              move_bytes(host_place(host.data()), file_place(open("f", "r", faulty)), nbytes))),
            DP_ERR_IO);
  EXPECT_EQ(status(scheduler->transfer(
              move_bytes(file_place(open("g", "w")), file_place(open("f", "r", faulty)), nbytes))),
            DP_ERR_IO);
}

TEST_F(SchedulerDiskTest, AClosedFileAndAWrongModeAreErrorsOfTheTicket)
{
  DeviceMemory const memory{device, chunk};
  auto const closed = open("f", "w");
  closed->close();
  EXPECT_EQ(status(scheduler->transfer(move_bytes(file_place(closed), memory.place(), chunk))),
            DP_ERR_CLOSED);
  EXPECT_EQ(
    status(scheduler->transfer(move_bytes(memory.place(), file_place(open("g", "w")), chunk))),
    DP_ERR_INVALID);
}

TEST_F(SchedulerDiskTest, AFileIsLetGoWhenTheTicketEndsNotWhenTheTicketIsDropped)
{
  auto const open_descriptors = [&] {
    std::size_t count = 0;
    for (auto const& entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
      std::error_code gone;
      if (std::filesystem::read_symlink(entry, gone) == scratch.file("f")) { ++count; }
    }
    return count;
  };
  DeviceMemory const memory{device, chunk};
  auto file = open("f", "w");
  EXPECT_GT(open_descriptors(), 0U);
  auto const ticket =
    scheduler->transfer(move_bytes(file_place(std::move(file)), memory.place(), chunk));
  EXPECT_EQ(result(ticket), chunk);
  EXPECT_EQ(open_descriptors(), 0U);
}

TEST_F(SchedulerDiskTest, ALostCompletionStaysPendingAndCloseIsBoundedAndSaysSo)
{
  auto const lossy  = make_engine("write:lost@nth=2");
  auto const nbytes = 4 * chunk;
  DeviceMemory const from{device, nbytes};
  OwnerProbe probe;
  auto request      = move_bytes(file_place(open("f", "w", lossy)), from.place(), nbytes);
  request.owner     = probe.owner();
  auto const ticket = scheduler->transfer(std::move(request));
  EXPECT_FALSE(ticket->wait(100'000'000));
  EXPECT_EQ(probe.released(), 0);

  // Others still get through with the chunks that are left.
  EXPECT_EQ(
    result(scheduler->transfer(move_bytes(file_place(open("g", "w")), from.place(), nbytes))),
    nbytes);
  set_setting("streams.close_timeout", "0.05");
  auto const error = error_of([&] { scheduler->close(); });
  set_setting("streams.close_timeout", nullptr);
  EXPECT_EQ(error.status, DP_ERR_IO);
  EXPECT_NE(error.message.find("1 transfers"), std::string::npos) << error.message;
  EXPECT_EQ(ticket->state(), DP_PENDING);
  EXPECT_EQ(probe.released(), 0);
  scheduler = nullptr;
}

/// Any bytes between any two places, against a model that knows what each place must hold.
TEST_F(SchedulerDiskTest, RandomTransfersBetweenRandomPlacesMatchAModel)
{
  constexpr std::uint64_t size = 700'000;
  std::mt19937_64 random{20};
  auto const below = [&](std::uint64_t limit) { return random() % limit; };

  struct Side {
    Bytes model;
    std::function<Place(std::uint64_t)> place;
    std::function<Bytes()> content;
  };
  DeviceMemory const device_a{device, size};
  DeviceMemory const device_b{device, size};
  PinnedBytes const pinned{device, size};
  Bytes pageable(size);
  auto const file_a = open("a", "w+");
  auto const file_b = open("b", "w+");
  std::vector<Side> sides;
  auto const add = [&](std::function<Place(std::uint64_t)> place, std::function<Bytes()> content) {
    sides.push_back({random_bytes(size, random()), std::move(place), std::move(content)});
  };
  add([&](auto at) { return device_a.place(at); }, [&] { return device_a.bytes(); });
  add([&](auto at) { return device_b.place(at); }, [&] { return device_b.bytes(); });
  add([&](auto at) { return host_place(pinned.data() + at); },
      [&] { return Bytes(pinned.data(), pinned.data() + size); });
  add([&](auto at) { return host_place(pageable.data() + at); }, [&] { return pageable; });
  add([&](auto at) { return file_place(file_a, at); },
      [&] { return read_whole(scratch.file("a")); });
  add([&](auto at) { return file_place(file_b, at); },
      [&] { return read_whole(scratch.file("b")); });
  for (auto& side : sides) {
    ASSERT_EQ(
      result(scheduler->transfer(move_bytes(side.place(0), host_place(side.model.data()), size))),
      size);
  }
  for (int round = 0; round < 200; ++round) {
    auto const from   = below(sides.size());
    auto const to     = (from + 1 + below(sides.size() - 1)) % sides.size();
    auto const nbytes = below(3) == 0 ? below(5000) : below(size);
    auto const at     = below(size - nbytes + 1);
    auto const onto   = below(size - nbytes + 1);
    auto const moved =
      result(scheduler->transfer(move_bytes(sides[to].place(onto), sides[from].place(at), nbytes)));
    ASSERT_EQ(moved, nbytes) << "round " << round;
    std::copy_n(sides[from].model.data() + at, nbytes, sides[to].model.data() + onto);
    ASSERT_EQ(sides[to].content() == sides[to].model, true)
      << "round " << round << ": " << nbytes << " bytes of " << from << " at " << at << " to " << to
      << " at " << onto;
  }
}

}  // namespace
}  // namespace datapath::testing
