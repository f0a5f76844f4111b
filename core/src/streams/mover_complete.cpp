// SPDX-License-Identifier: Apache-2.0
/// @file
/// Takes the ends of operations: counts them, sends the piece on, or lets its chunk go.
#include "streams/clock.hpp"
#include "streams/mover.hpp"
#include "streams/progress.hpp"

#include <algorithm>

namespace datapath {

bool Mover::poll_devices()
{
  auto any = false;
  for (auto& lane : device_lanes_) {
    if (!lane) { continue; }
    for (auto& queue : lane->queues()) {
      while (!queue->operations.empty()) {
        auto const [piece, event] = queue->operations.front();
        try {
          if (!device_->query(event)) { break; }
        } catch (...) {
          // The driver reports such an error from every call: nothing on the device runs any more.
          if (!piece->error) { piece->error = current_error(); }
        }
        queue->operations.pop_front();
        any          = true;
        piece->moved = piece->nbytes;
        if (event != piece->transfer->state.device_event) { device_->release_event(event); }
        complete(*piece);
      }
    }
  }
  return any;
}

void Mover::io_ended(TransferPiece& piece)
{
  piece.io_ended = true;
  piece.error    = piece.io->error();
  if (!piece.error) { piece.moved = piece.io->bytes(); }
  // An end without an error is followed by the release; one with an error perhaps never.
  if (piece.error || !piece.io_held) { complete(piece); }
}

void Mover::io_released(TransferPiece& piece)
{
  auto const transfer = Ref<Transfer>::adopt(piece.transfer);
  piece.io_held       = false;
  --held_;
  --transfer->state.held;
  if (piece.dropped) {
    if (piece.chunk != nullptr) { staging_.found(); }
    free_piece(piece);
    if (transfer->state.ended && transfer->state.held == 0) { transfer->request.owner.release(); }
  } else if (piece.io_ended) {
    complete(piece);
  }
}

void Mover::copied(TransferPiece& piece)
{
  piece.moved = piece.nbytes;
  complete(piece);
}

void Mover::complete(TransferPiece& piece)
{
  auto& transfer = *piece.transfer;
  auto& state    = transfer.state;
  piece.issued   = false;
  if (piece.poison) {
    drop(piece);
    end(transfer);
    return;
  }
  auto const id  = state.hops[piece.hop];
  auto const now = monotonic_now();
  lane(id).end(piece.nbytes, piece.waiting, piece.error ? 0 : piece.moved, now);
  trace_.add({transfer.order.sequence,
              piece.offset,
              piece.nbytes,
              piece.start,
              now,
              static_cast<std::uint8_t>(id),
              piece.error.has_value()});
  piece.waiting = false;
  piece.io      = nullptr;

  if (piece.error) {
    auto error = std::move(*piece.error);
    drop(piece);
    fail(transfer, std::move(error));
    return;
  }
  if (state.error) {
    drop(piece);
    try_finish(transfer);
    return;
  }
  if (id == LaneId::read && piece.moved < piece.nbytes) { after_short_read(piece); }
  if (piece.hop + 1 < state.hop_count && piece.moved > 0) {
    ++piece.hop;
    piece.nbytes = piece.moved;
    if (!state.ahead) { push_piece(piece); }
    return;
  }
  state.moved += piece.moved;
  drop(piece);
  try_finish(transfer);
}

void Mover::after_short_read(TransferPiece const& piece)
{
  auto& state = piece.transfer->state;
  state.end   = std::min(state.end, piece.offset + piece.moved);
  if (state.next >= state.end) { state.all_made = true; }
}

void Mover::drop(TransferPiece& piece)
{
  auto& pieces                                     = piece.transfer->state.pieces;
  *std::find(pieces.begin(), pieces.end(), &piece) = pieces.back();
  pieces.pop_back();
  if (piece.io_held) {
    piece.dropped = true;
    if (piece.chunk != nullptr) { staging_.lost(); }
  } else {
    free_piece(piece);
  }
}

void Mover::free_piece(TransferPiece& piece)
{
  std::unique_ptr<TransferPiece> const owned{&piece};
  if (piece.chunk == nullptr) { return; }
  staging_.release(piece.chunk);
  auto& transfer = *piece.transfer;
  auto& state    = transfer.state;
  --state.chunks;
  if (state.ahead) { staging_.no_longer_ahead(1); }
  if (std::exchange(state.wants_chunk, false) && !state.error && !state.finished) {
    start(transfer);
  }
  next_chunk_waiter();
}

void Mover::next_chunk_waiter()
{
  std::erase_if(chunk_waiters_, [](Ref<Transfer> const& waiter) {
    return waiter->state.finished || waiter->state.error || waiter->state.all_made;
  });
  auto const first = std::min_element(
    chunk_waiters_.begin(), chunk_waiters_.end(), [](auto const& a, auto const& b) {
      return a->order.before(b->order);
    });
  if (first == chunk_waiters_.end()) { return; }
  auto const waiter = std::move(*first);
  chunk_waiters_.erase(first);
  start(*waiter);
}

}  // namespace datapath
