// SPDX-License-Identifier: Apache-2.0
/// @file
/// Files that are read into staging while the streams that their transfers follow are still busy.
#include "device_support.hpp"
#include "scheduler_support.hpp"
#include "streams/transfer.hpp"

namespace datapath::testing {
namespace {

class SchedulerAheadTest : public SchedulerTest {
 protected:
  static constexpr std::uint64_t nbytes = 2 * chunk;
  /// Chunks that transfers may hold ahead, of the twelve.
  static constexpr std::uint64_t most_ahead = 6;

  SchedulerAheadTest() { write_whole(scratch.file("f"), wanted); }
  ~SchedulerAheadTest() override
  {
    gate.open();
    device->synchronize(stream);
    device->destroy_stream(stream);
  }

  /// The file to device memory, after the stream.
  [[nodiscard]] TransferRequest load(DeviceMemory const& to, std::string const& faults = {}) const
  {
    auto request =
      move_bytes(to.place(), file_place(make_engine(faults)->open(scratch.file("f"), "r")), nbytes);
    request.after_streams = {stream};
    return request;
  }

  [[nodiscard]] std::uint64_t chunks_ahead() const
  {
    auto const text = scheduler->describe();
    std::string const key{"\"ahead\":"};
    return std::stoull(text.substr(text.find(key) + key.size()));
  }

  [[nodiscard]] std::uint64_t bytes_read() const
  { return scheduler->lane_stats(DP_LANE_READ).bytes; }

  /// For a transfer that `go` lets fail, while another stream waits for it deferred.
  void expect_poison_after_the_stream(TransferRequest request, std::function<void()> const& go)
  {
    auto const waiting = device->create_stream(0);
    auto const ticket  = scheduler->transfer(std::move(request));
    wait_stream_deferred(*ticket, *device, waiting);
    go();
    EXPECT_FALSE(ticket->wait(20'000'000));
    EXPECT_EQ(memory.bytes(), Bytes(nbytes));
    gate.open();
    EXPECT_EQ(status(ticket), DP_ERR_IO);
    EXPECT_EQ(memory.bytes(), Bytes(nbytes, std::byte{0xFF}));
    device->synchronize(waiting);
    device->destroy_stream(waiting);
  }

  /// A scheduler whose pool has memory for so many chunks, while the stream uses the rest of it.
  void use_pool_with_room_for(std::uint64_t chunks)
  {
    scheduler->close();
    PoolOptions limits;
    limits.device      = device;
    limits.piece_bytes = 2 * MiB;
    limits.budget      = 2 * MiB;
    auto options       = small();
    options.pool       = make_ref<Pool>(limits);
    auto const rest    = options.pool->allocate(limits.budget - chunks * (chunk + 4 * KiB));
    rest->record_use(*device, stream);
    scheduler = make_ref<Scheduler>(device, options);
  }

  ScratchDirectory scratch;
  Bytes const wanted = random_bytes(nbytes, 1);
  DeviceMemory memory{device, nbytes};
  dp_stream stream = device->create_stream(0);
  StreamGate gate{device, stream};
};

TEST_F(SchedulerAheadTest, AFileIsReadWhileTheStreamIsBusyAndMovedToTheDeviceAfterIt)
{
  auto const ticket = scheduler->transfer(load(memory));
  wait_until([&] { return bytes_read() == nbytes; });
  EXPECT_EQ(ticket->state(), DP_PENDING);
  EXPECT_EQ(scheduler->lane_stats(DP_LANE_H2D).inflight_bytes, 0U);
  EXPECT_EQ(memory.bytes(), Bytes(nbytes));
  gate.open();
  EXPECT_EQ(result(ticket), nbytes);
  EXPECT_EQ(memory.bytes(), wanted);
  EXPECT_EQ(chunks_ahead(), 0U);
}

TEST_F(SchedulerAheadTest, AReadErrorEndsTheTransferWithoutTheStream)
{
  OwnerProbe probe;
  auto request      = load(memory, "read:eio@after=1");
  request.owner     = probe.owner();
  auto const ticket = scheduler->transfer(std::move(request));
  EXPECT_EQ(status(ticket), DP_ERR_IO);
  EXPECT_EQ(probe.released(), 1);
  EXPECT_EQ(memory.bytes(), Bytes(nbytes));
  EXPECT_EQ(chunks_ahead(), 0U);
}

TEST_F(SchedulerAheadTest, TheDestinationIsNotPoisonedWhileTheStreamMayUseIt)
{
  auto const start      = make_ref<Ticket>();
  auto request          = load(memory, "read:eio@after=1");
  request.after_tickets = {start};
  expect_poison_after_the_stream(std::move(request), [&] { start->complete(0); });
}

TEST_F(SchedulerAheadTest, ATransferThatCannotStartPoisonsOnlyAfterItsStreamToo)
{
  auto const failing    = make_ref<Ticket>();
  auto request          = load(memory);
  request.after_tickets = {failing};
  expect_poison_after_the_stream(
    std::move(request), [&] { failing->fail(ErrorInfo{DP_ERR_IO, "made to fail", {}, -1, 0, 0}); });
}

TEST_F(SchedulerAheadTest, AnEmptyFileDoesNotEndTheTransferBeforeTheStream)
{
  std::filesystem::resize_file(scratch.file("f"), 0);
  auto const ticket = scheduler->transfer(load(memory));
  wait_until([&] { return !trace_of(*scheduler).empty(); });
  EXPECT_EQ(ticket->state(), DP_PENDING);
  gate.open();
  EXPECT_EQ(result(ticket), 0U);
  EXPECT_EQ(memory.bytes(), Bytes(nbytes));
}

TEST_F(SchedulerAheadTest, ALongFileIsReadAsFarAsItsChunksReach)
{
  constexpr auto size = 10 * chunk;
  auto const bytes    = random_bytes(size, 2);
  write_whole(scratch.file("f"), bytes);
  DeviceMemory const to{device, size};
  auto request      = load(to);
  request.nbytes    = size;
  auto const ticket = scheduler->transfer(std::move(request));
  wait_until([&] { return bytes_read() == 3 * chunk; });
  gate.open();
  EXPECT_EQ(result(ticket), size);
  EXPECT_EQ(to.bytes(), bytes);
}

/// The stream waits for a transfer that needs chunks, while more transfers than there are chunks for wait
/// for the stream.
TEST_F(SchedulerAheadTest, WhatIsReadAheadLeavesChunksToThoseThatTheStreamWaitsFor)
{
  constexpr std::uint64_t count = 20;
  auto const start              = make_ref<Ticket>();
  auto first                    = load(memory);
  first.after_streams           = {};
  first.after_tickets           = {start};
  auto const awaited            = scheduler->transfer(std::move(first));
  wait_stream_deferred(*awaited, *device, stream);
  DeviceMemory const other{device, count * nbytes};
  std::vector<Ref<Ticket>> behind;
  for (std::uint64_t index = 0; index < count; ++index) {
    auto request        = load(memory);
    request.destination = other.place(index * nbytes);
    behind.push_back(scheduler->transfer(std::move(request)));
  }
  wait_until([&] { return bytes_read() == most_ahead * chunk; });
  EXPECT_EQ(chunks_ahead(), most_ahead);
  // Ready ones of every kind get through, whatever waits.
  EXPECT_EQ(result(scheduler->transfer(move_bytes(
              file_place(make_engine()->open(scratch.file("g"), "w")), other.place(), nbytes))),
            nbytes);
  start->complete(0);
  EXPECT_EQ(result(awaited), nbytes);
  EXPECT_EQ(behind.back()->state(), DP_PENDING);
  gate.open();
  for (auto const& ticket : behind) { EXPECT_EQ(result(ticket), nbytes); }
  for (std::uint64_t index = 0; index < count; ++index) {
    ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), other.data() + index * nbytes)) << index;
  }
  EXPECT_EQ(chunks_ahead(), 0U);
}

TEST_F(SchedulerAheadTest, WithMemoryForFewChunksNoneIsHeldAhead)
{
  scheduler->close();
  PoolOptions limits;
  limits.device      = device;
  limits.piece_bytes = 2 * MiB;
  limits.budget      = 2 * MiB;
  auto options       = small();
  options.pool       = make_ref<Pool>(limits);
  // A chunk and its room for alignment: three of them fill the pool, but four would be needed.
  options.chunk_bytes = 600 * KiB;
  scheduler           = make_ref<Scheduler>(device, options);
  DeviceMemory const other{device, nbytes};
  auto const gated = scheduler->transfer(load(memory));
  auto free        = load(other);
  free.after_streams.clear();
  EXPECT_EQ(result(scheduler->transfer(std::move(free))), nbytes);
  EXPECT_EQ(chunks_ahead(), 0U);
  EXPECT_EQ(bytes_read(), nbytes);
  gate.open();
  EXPECT_EQ(result(gated), nbytes);
  EXPECT_EQ(memory.bytes(), wanted);
}

/// The stream that uses the memory may wait for a transfer.
TEST_F(SchedulerAheadTest, MemoryThatABusyStreamUsesIsNotWaitedForWhereChunksAreThere)
{
  use_pool_with_room_for(3);
  DeviceMemory const other{device, nbytes};
  auto const gated = scheduler->transfer(load(memory));
  auto ready       = load(other);
  ready.after_streams.clear();
  EXPECT_TRUE(scheduler->transfer(std::move(ready))->wait(patience_ns));
  EXPECT_EQ(gated->state(), DP_PENDING);
  gate.open();
  EXPECT_EQ(result(gated), nbytes);
  EXPECT_EQ(memory.bytes(), wanted);
}

TEST_F(SchedulerAheadTest, OneChunkDoesWhereTheNextWouldHaveToBeWaitedFor)
{
  use_pool_with_room_for(1);
  auto ready = load(memory);
  ready.after_streams.clear();
  auto const ticket = scheduler->transfer(std::move(ready));
  EXPECT_TRUE(ticket->wait(patience_ns));
  EXPECT_EQ(memory.bytes(), wanted);
}

TEST_F(SchedulerAheadTest, WithoutAChunkATransferWaitsForMemoryAndHoldsUpNoOther)
{
  use_pool_with_room_for(0);
  DeviceMemory const other{device, nbytes};
  PinnedBytes const pinned{device, nbytes};
  auto ready = load(memory);
  ready.after_streams.clear();
  auto const waiting = scheduler->transfer(std::move(ready));
  auto const copy =
    scheduler->transfer(move_bytes(other.place(), host_place(pinned.data()), nbytes));
  EXPECT_TRUE(copy->wait(patience_ns));
  EXPECT_EQ(waiting->state(), DP_PENDING);
  gate.open();
  EXPECT_EQ(result(waiting), nbytes);
  EXPECT_EQ(memory.bytes(), wanted);
}

TEST_F(SchedulerAheadTest, WhatWasReadAheadGoesToTheDeviceInOrderOfUrgency)
{
  scheduler->close();
  auto options    = small();
  options.credits = nbytes;
  scheduler       = make_ref<Scheduler>(device, options);
  PinnedBytes const pinned{device, nbytes};
  DeviceMemory const held{device, nbytes};
  DeviceMemory const relaxed{device, nbytes};
  // Holds the lane, so that both are in its queue when it goes on.
  StreamGate lane{device, scheduler->stream(DP_LANE_H2D)};
  auto const holder =
    scheduler->transfer(move_bytes(held.place(), host_place(pinned.data()), nbytes));
  wait_until([&] { return scheduler->lane_stats(DP_LANE_H2D).inflight_bytes == nbytes; });
  auto const second = scheduler->transfer(load(relaxed));
  auto urgent       = load(memory);
  urgent.priority   = 1;
  auto const first  = scheduler->transfer(std::move(urgent));
  wait_until([&] { return bytes_read() == 2 * nbytes && chunks_ahead() == 4; });
  gate.open();
  wait_until([&] { return chunks_ahead() == 0; });
  lane.open();
  EXPECT_EQ(result(holder), nbytes);
  EXPECT_EQ(result(second), nbytes);
  EXPECT_EQ(result(first), nbytes);
  std::vector<std::uint64_t> order;
  for (auto const& hop : trace_of(*scheduler)) {
    if (hop.lane == "h2d") { order.push_back(hop.transfer); }
  }
  EXPECT_EQ(order, (std::vector<std::uint64_t>{0, 2, 2, 1, 1}));
}

TEST_F(SchedulerAheadTest, AFileThatIsWrittenBeforeTheStreamGoesOnIsNotReadAhead)
{
  auto const start = make_ref<Ticket>();
  auto const bytes = random_bytes(nbytes, 3);
  DeviceMemory const from{device, nbytes};
  std::copy(bytes.begin(), bytes.end(), from.data());
  auto write =
    move_bytes(file_place(make_engine()->open(scratch.file("f"), "r+")), from.place(), nbytes);
  write.after_tickets = {start};
  auto const written  = scheduler->transfer(std::move(write));
  wait_stream_deferred(*written, *device, stream);
  auto const read = scheduler->transfer(load(memory));
  EXPECT_FALSE(read->wait(20'000'000));
  EXPECT_EQ(bytes_read(), 0U);
  gate.open_without_waiting();
  start->complete(0);
  EXPECT_EQ(result(read), nbytes);
  EXPECT_EQ(memory.bytes(), bytes);
}

/// The stream waits for a copy that has nothing to do with the file, but comes after the write.
TEST_F(SchedulerAheadTest, AFileIsNotReadAheadWhereTheStreamWaitsForWhatFollowsItsWrite)
{
  auto const start = make_ref<Ticket>();
  auto const bytes = random_bytes(nbytes, 3);
  DeviceMemory const other{device, nbytes};
  PinnedBytes const pinned{device, nbytes};
  std::copy(bytes.begin(), bytes.end(), pinned.data());
  auto const file       = make_engine()->open(scratch.file("f"), "r+");
  auto write            = move_bytes(file_place(file), host_place(pinned.data()), nbytes);
  write.after_tickets   = {start};
  auto between          = move_bytes(other.place(), host_place(pinned.data()), nbytes);
  between.after_tickets = {scheduler->transfer(std::move(write))};
  auto last             = move_bytes(other.place(), host_place(pinned.data()), nbytes);
  last.after_tickets    = {scheduler->transfer(std::move(between))};
  wait_stream_deferred(*scheduler->transfer(std::move(last)), *device, stream);
  auto const read = scheduler->transfer(load(memory));
  EXPECT_FALSE(read->wait(20'000'000));
  EXPECT_EQ(bytes_read(), 0U);
  gate.open_without_waiting();
  start->complete(0);
  EXPECT_EQ(result(read), nbytes);
  EXPECT_EQ(memory.bytes(), bytes);
}

TEST_F(SchedulerAheadTest, AWriteWithoutASchedulerCountsToo)
{
  auto bytes = random_bytes(nbytes, 3);
  DeviceMemory const other{device, nbytes};
  dp_io_request const request{bytes.data(), nbytes, 0};
  auto const slow        = make_engine("write:slow@ms=300")->open(scratch.file("f"), "r+");
  auto follower          = move_bytes(other.place(), host_place(wanted.data()), nbytes);
  follower.after_tickets = {slow->write({&request, 1}, Owner{})};
  wait_stream_deferred(*scheduler->transfer(std::move(follower)), *device, stream);
  auto const read = scheduler->transfer(load(memory));
  gate.open_without_waiting();
  EXPECT_EQ(result(read), nbytes);
  EXPECT_EQ(memory.bytes(), bytes);
}

/// The one that is waited for came after a write, which is over.
TEST_F(SchedulerAheadTest, AWriteThatHasEndedHoldsNothingUp)
{
  DeviceMemory const other{device, nbytes};
  auto const write       = scheduler->transfer(move_bytes(
    file_place(make_engine()->open(scratch.file("g"), "w")), host_place(wanted.data()), nbytes));
  auto follower          = move_bytes(other.place(), host_place(wanted.data()), nbytes);
  follower.after_streams = {stream};
  follower.after_tickets = {write};
  auto const waiting     = device->create_stream(0);
  wait_stream_deferred(*scheduler->transfer(std::move(follower)), *device, waiting);
  EXPECT_EQ(result(write), nbytes);
  wait_until([] { return !Transfer::streams_wait_for_writes(); });
  auto const read = scheduler->transfer(load(memory));
  wait_until([&] { return bytes_read() == nbytes; });
  EXPECT_EQ(read->state(), DP_PENDING);
  gate.open();
  EXPECT_EQ(result(read), nbytes);
  device->synchronize(waiting);
  device->destroy_stream(waiting);
}

TEST_F(SchedulerAheadTest, WhatWasReadAheadFailsWhenTheSchedulerIsClosedAndTheStreamDoesNotGoOn)
{
  OwnerProbe probe;
  auto request      = load(memory);
  request.owner     = probe.owner();
  auto const ticket = scheduler->transfer(std::move(request));
  wait_until([&] { return bytes_read() == nbytes; });
  set_setting("streams.close_timeout", "0.05");
  scheduler->close();
  set_setting("streams.close_timeout", nullptr);
  EXPECT_EQ(status(ticket), DP_ERR_CLOSED);
  EXPECT_EQ(probe.released(), 1);
  EXPECT_EQ(memory.bytes(), Bytes(nbytes));
}

}  // namespace
}  // namespace datapath::testing
