// SPDX-License-Identifier: Apache-2.0
/// @file
/// Lets a stream follow a ticket.
#pragma once

#include "streams/device.hpp"
#include "support/ticket.hpp"

#include <cstdint>

namespace datapath {

/// Blocks the host while something else than device work is left, then orders the stream by an event.
/// False: timed out, nothing was ordered. Throws the ticket's error.
[[nodiscard]] bool wait_stream(Ticket& ticket,
                               Device& device,
                               dp_stream stream,
                               std::uint64_t timeout);

/// Never blocks the host: the stream waits for a flag that is set at the end, also after an error, when
/// the destination was filled with 0xFF. Throws the error if it is known by now, and DP_ERR_UNSUPPORTED
/// for tickets of plain I/O.
void wait_stream_deferred(Ticket& ticket, Device& device, dp_stream stream);

}  // namespace datapath
