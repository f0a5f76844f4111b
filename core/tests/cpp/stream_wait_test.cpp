// SPDX-License-Identifier: Apache-2.0
/// @file
/// Streams that wait for tickets, by events and by flags.
#include "device_support.hpp"
#include "scheduler_support.hpp"

namespace datapath::testing {
namespace {

class StreamWaitTest : public SchedulerTest {
 protected:
  static constexpr std::uint64_t nbytes = 3 * chunk;

  StreamWaitTest() { write_whole(scratch.file("f"), wanted); }
  ~StreamWaitTest() override
  {
    device->synchronize(stream);
    device->destroy_stream(stream);
  }

  [[nodiscard]] Ref<Ticket> read_with(std::string const& faults, Ref<Ticket> const& after = {})
  { return read_to(memory.place(), faults, after); }

  /// Moves the file; not before `after` has ended, so that the disk hop is open as long as the test likes.
  [[nodiscard]] Ref<Ticket> read_to(Place destination,
                                    std::string const& faults,
                                    Ref<Ticket> const& after)
  {
    engine = make_engine(faults);
    auto request =
      move_bytes(std::move(destination), file_place(engine->open(scratch.file("f"), "r")), nbytes);
    if (after) { request.after_tickets.push_back(after); }
    return scheduler->transfer(std::move(request));
  }

  /// What the stream sees of the destination when its turn comes.
  Bytes seen_by_stream()
  {
    DeviceMemory const seen{device, nbytes};
    device->copy_async(
      seen.address(), memory.address(), nbytes, CopyKind::device_to_device, stream);
    device->synchronize(stream);
    return seen.bytes();
  }

  static Bytes poison() { return Bytes(nbytes, std::byte{0xFF}); }

  ScratchDirectory scratch;
  Ref<Engine> engine;
  Ref<Ticket> const start = make_ref<Ticket>();
  Bytes const wanted      = random_bytes(nbytes, 1);
  DeviceMemory memory{device, nbytes};
  dp_stream stream = device->create_stream(0);
};

TEST_F(StreamWaitTest, DeviceWorkIsFollowedByAnEventWithoutBlockingTheHost)
{
  PinnedBytes const source{device, nbytes};
  std::copy(wanted.begin(), wanted.end(), source.data());
  StreamGate gate{device, scheduler->stream(DP_LANE_H2D)};
  auto const ticket =
    scheduler->transfer(move_bytes(memory.place(), host_place(source.data()), nbytes));
  EXPECT_TRUE(wait_stream(*ticket, *device, stream, forever));
  EXPECT_EQ(ticket->state(), DP_PENDING);
  gate.open();
  EXPECT_EQ(seen_by_stream(), wanted);
}

TEST_F(StreamWaitTest, AnOpenDiskHopBlocksTheHostAtMostForTheTimeout)
{
  auto const ticket = read_with("", start);
  EXPECT_FALSE(wait_stream(*ticket, *device, stream, 1'000'000));
  EXPECT_EQ(ticket->state(), DP_PENDING);
  start->complete(0);
  EXPECT_TRUE(wait_stream(*ticket, *device, stream, forever));
  EXPECT_EQ(seen_by_stream(), wanted);
}

TEST_F(StreamWaitTest, AnErrorOfTheDiskHopIsRaisedInsteadOfOrderingTheStream)
{
  auto const ticket = read_with("read:eio@after=1");
  EXPECT_EQ(status_of([&] { (void)wait_stream(*ticket, *device, stream, forever); }), DP_ERR_IO);
  // Every call says so, not only the first.
  EXPECT_EQ(status_of([&] { (void)wait_stream(*ticket, *device, stream, forever); }), DP_ERR_IO);
}

TEST_F(StreamWaitTest, AStreamThatRecordsAGraphIsRefused)
{
  auto const ticket = read_with("");
  device->begin_capture(stream);
  for (auto const deferred : {false, true}) {
    auto const error = error_of([&] {
      if (deferred) {
        wait_stream_deferred(*ticket, *device, stream);
      } else {
        (void)wait_stream(*ticket, *device, stream, forever);
      }
    });
    EXPECT_EQ(error.status, DP_ERR_UNSUPPORTED);
    EXPECT_NE(error.message.find("before the capture"), std::string::npos) << error.message;
  }
  device->end_capture(stream);
  EXPECT_EQ(result(ticket), nbytes);
}

TEST_F(StreamWaitTest, TheTicketOfPlainIoBlocksTheHostAndIsNotDeferred)
{
  engine          = make_engine("read:slow@ms=30");
  auto const file = engine->open(scratch.file("f"), "r");
  Bytes host(nbytes);
  dp_io_request const request{host.data(), nbytes, 0};
  auto const ticket = file->read({&request, 1}, Owner{});
  auto const error  = error_of([&] { wait_stream_deferred(*ticket, *device, stream); });
  EXPECT_EQ(error.status, DP_ERR_UNSUPPORTED);
  EXPECT_NE(error.message.find("without deferred"), std::string::npos);
  EXPECT_TRUE(wait_stream(*ticket, *device, stream, forever));
  EXPECT_EQ(host, wanted);
  // Ended well, nothing is left to wait for.
  wait_stream_deferred(*ticket, *device, stream);
}

TEST_F(StreamWaitTest, ADeferredWaitReturnsAtOnceAndTheStreamSeesTheBytes)
{
  auto const ticket = read_with("", start);
  wait_stream_deferred(*ticket, *device, stream);
  EXPECT_EQ(ticket->state(), DP_PENDING);
  start->complete(0);
  EXPECT_EQ(seen_by_stream(), wanted);
  EXPECT_EQ(result(ticket), nbytes);
}

TEST_F(StreamWaitTest, AfterAnErrorADeferredStreamSeesPoisonAndTheTicketTheError)
{
  auto const ticket = read_with("read:eio@after=1", start);
  wait_stream_deferred(*ticket, *device, stream);
  EXPECT_EQ(ticket->state(), DP_PENDING);
  start->complete(0);
  EXPECT_EQ(seen_by_stream(), poison());
  EXPECT_EQ(status(ticket), DP_ERR_IO);
}

TEST_F(StreamWaitTest, HostMemoryIsPoisonedToo)
{
  Bytes host(nbytes);
  auto const ticket = read_to(host_place(host.data()), "read:eio@after=1", start);
  wait_stream_deferred(*ticket, *device, stream);
  start->complete(0);
  device->synchronize(stream);
  EXPECT_EQ(host, poison());
  EXPECT_EQ(status(ticket), DP_ERR_IO);
}

TEST_F(StreamWaitTest, ATransferThatNeverStartsPoisonsForThoseWhoWaitDeferred)
{
  auto const first = read_with("read:eio@after=1", start);
  DeviceMemory const from{device, nbytes};
  auto request          = move_bytes(memory.place(), from.place(), nbytes);
  request.after_tickets = {first};
  auto const second     = scheduler->transfer(std::move(request));
  wait_stream_deferred(*second, *device, stream);
  start->complete(0);
  EXPECT_EQ(seen_by_stream(), poison());
  EXPECT_EQ(status(second), DP_ERR_IO);
}

TEST_F(StreamWaitTest, WithoutADeferredWaitNothingIsPoisoned)
{
  auto const ticket = read_with("read:eio");
  EXPECT_EQ(status(ticket), DP_ERR_IO);
  EXPECT_EQ(memory.bytes(), Bytes(nbytes));
}

TEST_F(StreamWaitTest, ADeferredWaitForAKnownErrorRaisesIt)
{
  auto const ticket = read_with("read:eio");
  EXPECT_EQ(status(ticket), DP_ERR_IO);
  EXPECT_EQ(status_of([&] { wait_stream_deferred(*ticket, *device, stream); }), DP_ERR_IO);
}

TEST_F(StreamWaitTest, SeveralStreamsWaitForOneTransfer)
{
  auto const ticket = read_with("", start);
  auto const other  = device->create_stream(0);
  DeviceMemory const seen{device, nbytes};
  wait_stream_deferred(*ticket, *device, stream);
  wait_stream_deferred(*ticket, *device, other);
  start->complete(0);
  device->copy_async(seen.address(), memory.address(), nbytes, CopyKind::device_to_device, other);
  EXPECT_EQ(seen_by_stream(), wanted);
  device->synchronize(other);
  EXPECT_EQ(seen.bytes(), wanted);
  device->destroy_stream(other);
}

TEST_F(StreamWaitTest, FlagsAreUsedAgainOnceTheirStreamHasGoneOn)
{
  for (int round = 0; round < 300; ++round) {
    auto const ticket = read_with("");
    wait_stream_deferred(*ticket, *device, stream);
    device->synchronize(stream);
    EXPECT_EQ(result(ticket), nbytes);
  }
  EXPECT_NE(scheduler->describe().find("\"pages\":1"), std::string::npos) << scheduler->describe();
}

/// Enqueueing a wait blocks, as the driver does where a stream's queue is full.
class FullQueueDevice : public NullDevice {
 public:
  void wait_value32(dp_stream stream, std::uint64_t address, std::uint32_t value) override
  {
    entered_.store(true);
    entered_.notify_all();
    open_.wait(false);
    NullDevice::wait_value32(stream, address, value);
  }
  void wait_until_entered() const { entered_.wait(false); }
  void open()
  {
    open_.store(true);
    open_.notify_all();
  }

 private:
  std::atomic<bool> entered_{false};
  std::atomic<bool> open_{false};
};

TEST(FullQueueTest, ATransferEndsWhileADeferredWaitForItIsHeldUpInTheDriver)
{
  constexpr std::uint64_t nbytes = 4096;
  auto const device              = make_ref<FullQueueDevice>();
  SchedulerOptions options;
  options.chunk_bytes  = nbytes;
  options.chunks       = 2;
  auto const scheduler = make_ref<Scheduler>(device, options);
  auto const stream    = device->create_stream(0);
  auto const start     = make_ref<Ticket>();
  Bytes const from     = random_bytes(nbytes, 2);
  DeviceMemory const to{device, nbytes};
  TransferRequest request;
  request.destination   = to.place();
  request.source        = host_place(from.data());
  request.nbytes        = nbytes;
  request.after_tickets = {start};
  auto const ticket     = scheduler->transfer(std::move(request));
  std::thread waiter{[&] { wait_stream_deferred(*ticket, *device, stream); }};
  device->wait_until_entered();
  start->complete(0);
  EXPECT_TRUE(ticket->wait(patience_ns)) << "the scheduler is held up too";
  device->open();
  waiter.join();
  device->synchronize(stream);
  EXPECT_EQ(ticket->bytes(), nbytes);
  EXPECT_EQ(to.bytes(), from);
  device->destroy_stream(stream);
  scheduler->close();
}

}  // namespace
}  // namespace datapath::testing
