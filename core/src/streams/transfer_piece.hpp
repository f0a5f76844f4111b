// SPDX-License-Identifier: Apache-2.0
/// @file
/// A part of a transfer on its way: the unit that lanes carry.
#pragma once

#include "streams/inbox.hpp"
#include "streams/staging.hpp"
#include "support/ref.hpp"
#include "support/ticket.hpp"

#include <cstdint>
#include <optional>

namespace datapath {

class Progress;
class Transfer;

/// Belongs to the progress thread but for the notices, which the thread that ends an operation pushes.
struct TransferPiece {
  Transfer* transfer{nullptr};
  std::uint64_t offset{0};  ///< In the transfer.
  std::uint64_t nbytes{0};
  std::uint64_t moved{0};  ///< Bytes that the last hop delivered.
  std::uint8_t hop{0};
  bool issued{false};   ///< An operation is in flight.
  bool waiting{false};  ///< That operation waits for other streams first.
  std::uint64_t start{0};
  std::uint64_t chunk_offset{
    0};  ///< Where the bytes begin in the chunk: as misaligned as in the file.
  Staging::Chunk* chunk{nullptr};
  std::optional<ErrorInfo> error;

  Ref<Ticket> io;  ///< The ticket of the I/O in flight.
  bool io_ended{false};
  bool io_held{false};  ///< The I/O may still touch the memory.
  bool dropped{false};  ///< Done with; only the release of its memory is waited for.
  bool poison{false};   ///< Fills the destination after an error.
  Notice ended_notice;  ///< io_ended or copied.
  Notice released_notice;

  std::byte* copy_destination{nullptr};
  std::byte const* copy_source{nullptr};
  Progress* progress{nullptr};
};

}  // namespace datapath
