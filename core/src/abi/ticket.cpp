// SPDX-License-Identifier: Apache-2.0
#include "support/ticket.hpp"

#include "abi/handles.hpp"
#include "streams/stream_wait.hpp"

using namespace datapath;

namespace {

/// DP_OK, DP_PENDING, or the ticket's error as the thread's last one.
dp_status report(Ticket const& ticket)
{
  if (!ticket.ended()) { return DP_PENDING; }
  if (auto error = ticket.error()) { return set_last_error(std::move(*error)); }
  return DP_OK;
}

}  // namespace

void dp_ticket_retain(dp_ticket* ticket)
{ retain_handle(ticket); }

void dp_ticket_release(dp_ticket* ticket)
{ release_handle(ticket); }

dp_status dp_ticket_test(dp_ticket* handle)
{
  return guard([&] {
    auto const& ticket = from_handle(handle);
    ticket.check_usable();
    return report(ticket);
  });
}

dp_status dp_ticket_result(dp_ticket* handle, uint64_t timeout, uint64_t* nbytes)
{
  return guard([&]() -> dp_status {
    auto const& ticket = from_handle(handle);
    ticket.check_usable();
    if (!ticket.wait(timeout)) { return DP_TIMEOUT; }
    auto const moved = ticket.bytes();
    if (nbytes != nullptr) { *nbytes = moved; }
    return DP_OK;
  });
}

dp_status dp_ticket_wait_stream(
  dp_ticket* handle, dp_device* device, dp_stream stream, int32_t deferred, uint64_t timeout)
{
  return guard([&]() -> dp_status {
    auto& ticket  = from_handle(handle);
    auto& waiting = from_handle(device);
    ticket.check_usable();
    if (deferred == 0) {
      return wait_stream(ticket, waiting, stream, timeout) ? DP_OK : DP_TIMEOUT;
    }
    wait_stream_deferred(ticket, waiting, stream);
    return DP_OK;
  });
}
