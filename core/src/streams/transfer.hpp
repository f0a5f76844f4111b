// SPDX-License-Identifier: Apache-2.0
/// @file
/// A transfer: what was asked for, how far it is, and the ticket that the caller holds, in one object.
#pragma once

#include "streams/flags.hpp"
#include "streams/inbox.hpp"
#include "streams/lane.hpp"
#include "streams/place.hpp"
#include "streams/transfer_piece.hpp"
#include "support/owner.hpp"
#include "support/ticket.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace datapath {

class Progress;

/// What a caller asks of a scheduler.
struct TransferRequest {
  Place destination;
  Place source;
  std::uint64_t nbytes{0};
  std::int32_t priority{0};
  std::uint64_t deadline{0};
  std::vector<dp_stream> after_streams;
  std::vector<Ref<Ticket>> after_tickets;
  Owner owner;
};

/// The progress thread's view of a transfer.
struct TransferState {
  std::array<LaneId, 2> hops{};
  std::uint8_t hop_count{1};
  bool planned{false};
  bool started{false};  ///< Some operation was issued.
  bool streams_passed{true};
  bool finished{false};   ///< The outcome is decided; entries in lanes that name it are stale.
  bool ended{false};      ///< The poison, if there had to be one, has passed too.
  std::uint64_t end{0};   ///< Bytes to move: less than asked once a file turned out to be shorter.
  std::uint64_t next{0};  ///< Where the next piece begins.
  std::uint64_t moved{0};
  std::uint64_t enqueued{0};  ///< Bytes handed to the last hop.
  std::uint32_t chunks{0};    ///< Staging chunks in use.
  std::uint32_t held{0};      ///< Pieces whose memory I/O may still touch.
  bool whole{false};          ///< Goes as one piece.
  bool all_made{false};       ///< The last piece was made.
  bool wants_chunk{false};    ///< Out of its lane until one of its own chunks comes back.
  bool ahead{false};          ///< Reads into chunks although its streams have not passed.
  bool ahead_stalled{
    false};  ///< Out of its lane until a chunk may be had ahead, or its streams pass.
  std::vector<TransferPiece*> pieces;
  std::optional<ErrorInfo> error;
  std::vector<DeferredFlag> flags;  ///< To be set at the end.
  EventHandle device_event{0};
  std::size_t live_index{0};
};

class Transfer final : public Ticket {
 public:
  /// `order.sequence` is the caller's to set, once the events are recorded.
  Transfer(std::shared_ptr<Progress> owner_progress, TransferRequest&& asked);

  TransferRequest request;
  Order order;
  std::vector<EventHandle> after_events;
  TransferState state;
  Notice submitted_notice;
  Notice tickets_notice;
  std::atomic<std::size_t> open_tickets{0};

  /// The lane of the first hop, known without looking at the memory.
  [[nodiscard]] LaneId first_lane() const noexcept;

  /// Makes `stream` wait for a flag that is set at the end; false if all is well already. Throws the
  /// transfer's error once that is known.
  [[nodiscard]] bool wait_deferred(Device& device, dp_stream stream);
  /// Enqueues setting the flags behind the last copy.
  void set_flags_on(Device& device, dp_stream stream);
  /// The outcome is known: no more flags are taken, those taken are the caller's to set.
  [[nodiscard]] std::vector<DeferredFlag> decide(std::optional<ErrorInfo> const& error);
  /// All that it was to follow by tickets has ended, the writes among that too.
  void followed_ended();
  /// Whether some stream waits deferred for a transfer to a disk, of any scheduler, or for one that comes
  /// after a write: work on that stream comes after the write, and so must a read that is to follow it.
  [[nodiscard]] static bool streams_wait_for_writes() noexcept;

 private:
  /// False once decided.
  [[nodiscard]] bool add_flag(DeferredFlag const& flag);
  [[nodiscard]] std::optional<ErrorInfo> error_if_decided() const;

  bool const to_disk_;
  std::shared_ptr<Progress> progress_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<DeferredFlag> flags_;
  bool counted_{false};  ///< As one that streams wait for and that awaits a write.
  bool decided_{false};
  std::optional<ErrorInfo> decided_error_;
};

}  // namespace datapath
