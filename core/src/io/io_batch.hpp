// SPDX-License-Identifier: Apache-2.0
/// @file
/// What one call asks for: its pieces, its ticket, and what must live until the last piece has
/// ended.
#pragma once

#include "io/engine.hpp"
#include "io/inflight.hpp"
#include "io/io_piece.hpp"
#include "support/owner.hpp"
#include "support/ticket.hpp"

#include <atomic>
#include <memory>
#include <vector>

namespace datapath {

/// The extent that a batch works on.
class IoSubject : public RefCounted {
 public:
  /// No piece touches memory or drive any more; the ticket is still pending. The batch's reference
  /// goes right after this: whoever sees the ticket's end and drops the last one has the bytes back
  /// at once.
  virtual void settled(IoOp op, std::uint64_t nbytes) noexcept = 0;
};

/// The file or volume that counts a batch among its work in flight.
class IoDoor : public RefCounted {
 public:
  /// The ticket has ended.
  virtual void left(Inflight::Token token) noexcept = 0;

  void attempt_ended() noexcept { attempts_ended_.fetch_add(1, std::memory_order_relaxed); }
  /// Attempts of its batches that have ended. Tells slow from stuck, whatever its engine does for
  /// others.
  [[nodiscard]] std::uint64_t attempts_ended() const noexcept
  { return attempts_ended_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> attempts_ended_{0};
};

/// What was entered for a batch and is left at its end.
struct IoEntry {
  Ref<Engine> engine;
  Inflight::Token engine_token{0};
  Ref<IoDoor> door;
  Inflight::Token door_token{0};
};

class IoBatch {
 public:
  /// `whole`: a read that ends early is an error.
  IoBatch(IoOp op, bool whole)
    : op_{op}, whole_{whole}, ticket_{make_ref<Ticket>(op == IoOp::write)}
  {}

  /// To be filled before `start`.
  [[nodiscard]] std::vector<IoPiece>& pieces() noexcept { return pieces_; }
  [[nodiscard]] IoOp op() const noexcept { return op_; }

  /// Submits the pieces; the batch deletes itself at its end. `subject` may be nothing.
  static Ref<Ticket> start(std::unique_ptr<IoBatch> batch,
                           Owner owner,
                           IoEntry entry,
                           Ref<IoSubject> subject);

 private:
  friend void attempt_ended(IoPiece& piece, std::int64_t result) noexcept;

  void advance(IoPiece& piece, std::uint64_t nbytes) noexcept;
  void stalled(IoPiece& piece, int os_errno) noexcept;
  void failed(IoPiece const& piece, ErrorInfo error) noexcept;
  void failed(IoPiece const& piece, int os_errno) noexcept;
  void piece_ended() noexcept;
  void finish() noexcept;

  IoOp op_;
  bool whole_;
  std::atomic<bool> has_failed_{false};
  std::atomic<std::size_t> left_{0};
  std::atomic<std::uint64_t> moved_{0};
  ErrorInfo error_;
  std::vector<IoPiece> pieces_;
  Ref<Ticket> ticket_;
  Owner owner_;
  IoEntry entry_;
  Ref<IoSubject> subject_;
};

}  // namespace datapath
