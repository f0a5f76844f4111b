// SPDX-License-Identifier: Apache-2.0
#include "streams/stream_wait.hpp"

#include "streams/transfer.hpp"

namespace datapath {

namespace {

void refuse_capture(Device& device, dp_stream stream)
{
  if (device.is_capturing(stream)) {
    fail(
      DP_ERR_UNSUPPORTED,
      "a stream that records a graph cannot wait for a ticket: a replay of the graph would not wait; "
      "wait before the capture begins");
  }
}

/// True if the stream is ordered, by an event or because all is over; throws the error of the work.
bool order_by_event(Ticket& ticket, Device& device, dp_stream stream)
{
  auto const waits = ticket.with_event([&](Device& origin, std::uint64_t event) {
    if (origin.is_cuda() != device.is_cuda()) {
      fail(
        DP_ERR_UNSUPPORTED,
        "the stream's device cannot wait for work of the ticket's; wait for the ticket's result");
    }
    device.wait_event(stream, event);
  });
  if (waits) { return true; }
  if (!ticket.ended()) { return false; }
  (void)ticket.bytes();
  return true;
}

}  // namespace

bool wait_stream(Ticket& ticket, Device& device, dp_stream stream, std::uint64_t timeout)
{
  refuse_capture(device, stream);
  return ticket.wait_host_part(timeout) && order_by_event(ticket, device, stream);
}

void wait_stream_deferred(Ticket& ticket, Device& device, dp_stream stream)
{
  refuse_capture(device, stream);
  if (order_by_event(ticket, device, stream)) { return; }
  auto* const transfer = dynamic_cast<Transfer*>(&ticket);
  if (transfer == nullptr) {
    fail(
      DP_ERR_UNSUPPORTED,
      "only a scheduler's transfer can be waited for deferred: the destination of plain I/O could not "
      "be poisoned after an error; move the bytes by a transfer, or wait without deferred");
  }
  // Where it takes no flag any more, all bytes have arrived, and only the ticket's end is not announced yet.
  (void)transfer->wait_deferred(device, stream);
}

}  // namespace datapath
