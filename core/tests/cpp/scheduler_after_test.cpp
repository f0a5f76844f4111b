// SPDX-License-Identifier: Apache-2.0
/// @file
/// Transfers that follow streams and tickets.
#include "device_support.hpp"
#include "scheduler_support.hpp"

namespace datapath::testing {
namespace {

class SchedulerAfterTest : public SchedulerTest {
 protected:
  static constexpr std::uint64_t nbytes = 3 * chunk;

  /// A stream of its own that goes on when the test says so.
  struct Gate {
    explicit Gate(Ref<NullDevice> on)
      : device{on}, stream{on->create_stream(0)}, gate{std::make_unique<StreamGate>(on, stream)}
    {}
    ~Gate()
    {
      gate.reset();
      device->destroy_stream(stream);
    }
    Gate(Gate const&)            = delete;
    Gate& operator=(Gate const&) = delete;
    void open() { gate->open(); }

    Ref<NullDevice> device;
    dp_stream stream;
    std::unique_ptr<StreamGate> gate;
  };

  [[nodiscard]] Ref<Ticket> after(std::vector<dp_stream> streams, TransferRequest request)
  {
    request.after_streams = std::move(streams);
    return scheduler->transfer(std::move(request));
  }
  [[nodiscard]] Ref<Ticket> follow(std::vector<Ref<Ticket>> tickets, TransferRequest request)
  {
    request.after_tickets = std::move(tickets);
    return scheduler->transfer(std::move(request));
  }

  ScratchDirectory scratch;
  Bytes const wanted = random_bytes(nbytes, 1);
  DeviceMemory memory{device, nbytes};
  PinnedBytes pinned{device, nbytes};
};

TEST_F(SchedulerAfterTest, ATransferStartsAfterTheWorkOfItsStreams)
{
  Gate gate{device};
  DeviceMemory const made{device, nbytes};
  std::copy(wanted.begin(), wanted.end(), made.data());
  device->copy_async(
    memory.address(), made.address(), nbytes, CopyKind::device_to_device, gate.stream);
  auto const direct =
    after({gate.stream}, move_bytes(host_place(pinned.data()), memory.place(), nbytes));
  auto const file   = make_engine()->open(scratch.file("f"), "w");
  auto const staged = after({gate.stream}, move_bytes(file_place(file), memory.place(), nbytes));
  EXPECT_FALSE(direct->wait(20'000'000));
  EXPECT_EQ(staged->state(), DP_PENDING);
  gate.open();
  EXPECT_EQ(result(direct), nbytes);
  EXPECT_EQ(result(staged), nbytes);
  EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), pinned.data()));
  EXPECT_EQ(read_whole(scratch.file("f")), wanted);
}

TEST_F(SchedulerAfterTest, ATransferThatOnlyWaitsForAStreamNeverBlocksTheHost)
{
  Gate gate{device};
  auto const ticket =
    after({gate.stream}, move_bytes(host_place(pinned.data()), memory.place(), nbytes));
  auto const stream = device->create_stream(0);
  // Returns although nothing has moved: an event of the lane's stream orders the two.
  EXPECT_TRUE(wait_stream(*ticket, *device, stream, patience_ns));
  EXPECT_EQ(ticket->state(), DP_PENDING);
  gate.open();
  device->synchronize(stream);
  EXPECT_EQ(result(ticket), nbytes);
  device->destroy_stream(stream);
}

TEST_F(SchedulerAfterTest, WhatWaitsForStreamsNeverHoldsUpWhatIsReady)
{
  std::vector<std::unique_ptr<Gate>> gates;
  std::vector<Ref<Ticket>> waiting;
  PinnedBytes const targets{device, 27 * nbytes};
  auto const file = make_engine()->open(scratch.file("f"), "w+");
  // More streams than a lane has side streams, more bytes than it has credits, and staged ones too.
  for (int index = 0; index < 9; ++index) {
    gates.push_back(std::make_unique<Gate>(device));
    for (int again = 0; again < 3; ++again) {
      auto* const target = targets.data() + waiting.size() * nbytes;
      waiting.push_back(
        after({gates.back()->stream}, move_bytes(host_place(target), memory.place(), nbytes)));
    }
  }
  for (auto const& gate : gates) {
    waiting.push_back(after({gate->stream}, move_bytes(file_place(file), memory.place(), nbytes)));
  }
  Bytes pageable(nbytes);
  EXPECT_EQ(
    result(scheduler->transfer(move_bytes(host_place(pinned.data()), memory.place(), nbytes))),
    nbytes);
  EXPECT_EQ(
    result(scheduler->transfer(move_bytes(host_place(pageable.data()), memory.place(), nbytes))),
    nbytes);
  EXPECT_EQ(result(scheduler->transfer(move_bytes(file_place(file), memory.place(), nbytes))),
            nbytes);
  for (auto const& ticket : waiting) { EXPECT_EQ(ticket->state(), DP_PENDING); }
  // Opened backwards: no order among them may matter either.
  for (auto gate = gates.rbegin(); gate != gates.rend(); ++gate) { (*gate)->open(); }
  for (auto const& ticket : waiting) { EXPECT_EQ(result(ticket), nbytes); }
}

TEST_F(SchedulerAfterTest, ATransferBehindAStreamThatWaitsForAnotherTransferDoesNotDeadlock)
{
  write_whole(scratch.file("f"), wanted);
  auto const slow   = make_engine("read:slow@ms=5");
  auto const stream = device->create_stream(0);
  auto const first  = scheduler->transfer(
    move_bytes(memory.place(), file_place(slow->open(scratch.file("f"), "r")), nbytes));
  wait_stream_deferred(*first, *device, stream);
  constexpr std::uint64_t count = 10;
  DeviceMemory const other{device, count * nbytes};
  std::vector<Ref<Ticket>> behind;
  for (std::uint64_t index = 0; index < count; ++index) {
    behind.push_back(
      after({stream}, move_bytes(other.place(index * nbytes), host_place(pinned.data()), nbytes)));
  }
  EXPECT_EQ(result(first), nbytes);
  for (auto const& ticket : behind) { EXPECT_EQ(result(ticket), nbytes); }
  device->destroy_stream(stream);
}

TEST_F(SchedulerAfterTest, AnUrgentTransferBehindAStreamThatWaitsForAnEarlierOneDoesNotDeadlock)
{
  auto const file   = make_engine()->open(scratch.file("f"), "w");
  auto const stream = device->create_stream(0);
  alignas(4) std::uint32_t word{0};
  device->wait_value32(stream, reinterpret_cast<std::uint64_t>(&word), 1);
  auto const first = after({stream}, move_bytes(file_place(file), memory.place(), nbytes));
  wait_stream_deferred(*first, *device, stream);
  auto request      = move_bytes(file_place(file, nbytes), memory.place(), nbytes);
  request.priority  = 1;
  auto const urgent = after({stream}, std::move(request));
  // Both have reached the scheduler's thread by the time that the stream goes on.
  EXPECT_FALSE(first->wait(20'000'000));
  std::atomic_ref{word}.store(1);
  EXPECT_EQ(result(first), nbytes);
  EXPECT_EQ(result(urgent), nbytes);
  device->destroy_stream(stream);
}

TEST_F(SchedulerAfterTest, AStreamThatRecordsAGraphIsRefusedWithTheRemedy)
{
  auto const stream = device->create_stream(0);
  device->begin_capture(stream);
  OwnerProbe probe;
  auto request          = move_bytes(memory.place(), host_place(pinned.data()), nbytes);
  request.after_streams = {stream};
  request.owner         = probe.owner();
  auto const error      = error_of([&] { (void)scheduler->transfer(std::move(request)); });
  EXPECT_EQ(error.status, DP_ERR_UNSUPPORTED);
  EXPECT_NE(error.message.find("records a graph"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("outside of the capture"), std::string::npos) << error.message;
  device->end_capture(stream);
  request = {};
  EXPECT_EQ(probe.released(), 1);
  device->destroy_stream(stream);
}

TEST_F(SchedulerAfterTest, ATransferFollowsTickets)
{
  auto const engine = make_engine("write:slow@ms=10");
  auto const file   = engine->open(scratch.file("f"), "w+");
  std::copy(wanted.begin(), wanted.end(), pinned.data());
  auto const loaded =
    scheduler->transfer(move_bytes(memory.place(), host_place(pinned.data()), nbytes));
  auto const written = follow({loaded}, move_bytes(file_place(file), memory.place(), nbytes));
  DeviceMemory const back{device, nbytes};
  auto const read = follow({written, loaded}, move_bytes(back.place(), file_place(file), nbytes));
  EXPECT_EQ(result(read), nbytes);
  EXPECT_EQ(written->state(), DP_OK);
  EXPECT_EQ(back.bytes(), wanted);
}

TEST_F(SchedulerAfterTest, ATransferFailsWithTheErrorOfTheTicketItFollows)
{
  auto const engine = make_engine("write:enospc");
  auto const full   = scheduler->transfer(
    move_bytes(file_place(engine->open(scratch.file("f"), "w")), memory.place(), nbytes));
  OwnerProbe probe;
  auto request          = move_bytes(host_place(pinned.data()), memory.place(), nbytes);
  request.owner         = probe.owner();
  auto const next       = follow({full}, std::move(request));
  auto const after_next = follow({next}, move_bytes(host_place(pinned.data()), memory.place(), 1));
  EXPECT_EQ(status(after_next), DP_ERR_NO_SPACE);
  EXPECT_EQ(status(next), DP_ERR_NO_SPACE);
  EXPECT_EQ(probe.released(), 1);
  auto const error = next->error().value();
  EXPECT_EQ(error.os_errno, ENOSPC);
  EXPECT_NE(error.message.find("not started"), std::string::npos);
  EXPECT_NE(error.message.find(full->error()->message), std::string::npos);
  for (auto const& hop : trace_of(*scheduler)) { EXPECT_EQ(hop.transfer, 0U); }
}

TEST_F(SchedulerAfterTest, ALongChainOfTicketsEnds)
{
  Ref<Ticket> last;
  for (int index = 0; index < 20'000; ++index) {
    auto request = move_bytes(memory.place(), host_place(pinned.data()), 8);
    if (last) { request.after_tickets.push_back(last); }
    last = scheduler->transfer(std::move(request));
  }
  EXPECT_EQ(result(last), 8U);
}

}  // namespace
}  // namespace datapath::testing
