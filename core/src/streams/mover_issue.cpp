// SPDX-License-Identifier: Apache-2.0
/// @file
/// Cuts transfers into pieces and starts the operations of their hops.
#include "streams/clock.hpp"
#include "streams/mover.hpp"
#include "streams/pinned.hpp"
#include "streams/plan.hpp"
#include "streams/progress.hpp"

#include <cstring>

namespace datapath {

namespace {

std::byte* pointer_to(std::uint64_t address)
{ return reinterpret_cast<std::byte*>(address); }

CopyKind copy_kind(LaneId lane)
{
  if (lane == LaneId::h2d) { return CopyKind::host_to_device; }
  return lane == LaneId::d2h ? CopyKind::device_to_host : CopyKind::device_to_device;
}

}  // namespace

bool Mover::pump()
{
  auto any = false;
  for (auto& lane : lanes_) { any = pump(*lane) || any; }
  return any;
}

bool Mover::pump(Lane& lane)
{
  auto any = false;
  while (!lane.empty()) {
    auto const& top   = lane.top();
    auto& transfer    = *top.transfer;
    auto const& state = transfer.state;
    if (state.finished || state.error || (top.piece == nullptr && state.all_made)) {
      lane.pop();
      continue;
    }
    if (top.piece == nullptr) {
      if (!make_piece(lane, transfer)) { break; }
    } else {
      if (!lane.fits(top.piece->nbytes, false)) { break; }
      auto const entry = lane.pop();
      issue(*entry.piece, nullptr);
    }
    any = true;
  }
  return any;
}

bool Mover::make_piece(Lane& lane, Transfer& transfer)
{
  auto& state         = transfer.state;
  auto const& request = transfer.request;
  Staging::Chunk* chunk{nullptr};
  DeviceQueue* side{nullptr};
  std::uint64_t nbytes{0};
  try {
    auto const waits = state.whole && !state.streams_passed && !streams_passed(transfer);
    nbytes =
      state.whole
        ? request.nbytes
        : piece_bytes(request.destination, request.source, state.next, state.end, chunk_bytes());
    if (waits) {
      if (lane.fits(nbytes, true)) {
        side = device_lane(lane.id())->side(request.after_streams, transfer.order.sequence);
      }
      if (side == nullptr) {
        auto const entry = lane.pop();
        park_gated(transfer);
        return true;
      }
    } else if (!lane.fits(nbytes, false)) {
      return false;
    }
    if (state.hop_count == 2) {
      chunk = take_chunk(lane, transfer);
      if (chunk == nullptr) { return true; }
    }
  } catch (...) {
    fail(transfer, current_error());
    return true;
  }

  auto piece          = std::make_unique<TransferPiece>();
  piece->transfer     = &transfer;
  piece->progress     = &progress_;
  piece->offset       = state.next;
  piece->nbytes       = nbytes;
  piece->waiting      = side != nullptr;
  piece->chunk        = chunk;
  piece->chunk_offset = piece_misalignment(request.destination, request.source, state.next);
  state.pieces.push_back(piece.get());
  state.next += nbytes;
  state.all_made = state.whole || state.next >= state.end;
  if (!state.started) {
    state.started = true;
    this->lane(transfer.first_lane()).dequeued();
  }
  if (state.all_made) { lane.pop(); }
  issue(*piece.release(), side);
  return true;
}

Staging::Chunk* Mover::take_chunk(Lane& lane, Transfer& transfer)
{
  auto& state = transfer.state;
  if (state.chunks >= chunks_per_transfer_) {
    state.wants_chunk = true;
    lane.pop();
    return nullptr;
  }
  auto* const chunk =
    state.ahead ? (may_stage_ahead() ? staging_.acquire_ahead() : nullptr) : staging_.acquire();
  if (chunk != nullptr) {
    ++state.chunks;
  } else if (state.ahead) {
    state.ahead_stalled = true;
    lane.pop();
  } else {
    chunk_waiters_.push_back(lane.pop().transfer);
  }
  return chunk;
}

void Mover::issue(TransferPiece& piece, DeviceQueue* queue)
{
  auto const id = piece.transfer->state.hops[piece.hop];
  piece.start   = monotonic_now();
  piece.issued  = true;
  lane(id).begin(piece.nbytes, piece.waiting, piece.start);
  switch (id) {
    case LaneId::h2d:
    case LaneId::d2h:
    case LaneId::kernel:
      issue_device(piece, queue == nullptr ? device_lane(id)->main() : *queue);
      break;
    case LaneId::read:
    case LaneId::write:
      issue_io(piece);
      break;
    case LaneId::host:
      issue_host(piece);
      break;
  }
}

std::uint64_t Mover::source_address(TransferPiece const& piece) const noexcept
{
  if (piece.hop > 0) { return piece.chunk->address() + piece.chunk_offset; }
  return piece.transfer->request.source.address + piece.offset;
}

std::uint64_t Mover::destination_address(TransferPiece const& piece) const noexcept
{
  if (piece.hop + 1 < piece.transfer->state.hop_count) {
    return piece.chunk->address() + piece.chunk_offset;
  }
  return piece.transfer->request.destination.address + piece.offset;
}

void Mover::issue_device(TransferPiece& piece, DeviceQueue& queue)
{
  auto& transfer   = *piece.transfer;
  auto& state      = transfer.state;
  auto const final = piece.hop + 1 == state.hop_count;
  auto last        = false;
  EventHandle event{0};
  try {
    event = device_->acquire_event();
  } catch (...) {
    piece.error = current_error();
    complete(piece);
    return;
  }
  try {
    if (piece.waiting) {
      for (auto const after : transfer.after_events) { device_->wait_event(queue.stream, after); }
    }
    copy_pinned(*device_,
                destination_address(piece),
                source_address(piece),
                piece.nbytes,
                copy_kind(state.hops[piece.hop]),
                queue.stream);
    if (final) { state.enqueued += piece.nbytes; }
    last = final && state.all_made && state.enqueued == transfer.request.nbytes;
    if (last) { transfer.set_flags_on(*device_, queue.stream); }
  } catch (...) {
    piece.error = current_error();
  }
  try {
    // After a failed call too: what was enqueued before it has to end first.
    device_->record(event, queue.stream);
  } catch (...) {
    if (!piece.error) { piece.error = current_error(); }
    device_->release_event(event);
    complete(piece);
    return;
  }
  queue.operations.push_back({&piece, event});
  if (last && !piece.error) {
    state.device_event = event;
    transfer.enter_device(device_.get(), event);
  }
}

void Mover::issue_io(TransferPiece& piece)
{
  auto& transfer     = *piece.transfer;
  auto const reading = transfer.state.hops[piece.hop] == LaneId::read;
  auto const& place  = reading ? transfer.request.source : transfer.request.destination;
  dp_io_request const request{
    pointer_to(reading ? destination_address(piece) : source_address(piece)),
    piece.nbytes,
    place.offset + piece.offset};

  piece.io_ended        = false;
  piece.io_held         = true;
  piece.ended_notice    = {NoticeKind::io_ended, &piece, nullptr};
  piece.released_notice = {NoticeKind::io_released, &piece, nullptr};
  ++held_;
  ++transfer.state.held;
  transfer.retain();
  Owner owner{{[](void* context) {
                 auto& released = *static_cast<TransferPiece*>(context);
                 released.progress->inbox().push(released.released_notice);
               },
               &piece}};
  try {
    if (place.kind == DP_FILE) {
      piece.io = reading ? place.file->read({&request, 1}, std::move(owner))
                         : place.file->write({&request, 1}, std::move(owner));
    } else {
      piece.io = reading ? place.extent->read({&request, 1}, std::move(owner))
                         : place.extent->write({&request, 1}, std::move(owner));
    }
  } catch (...) {
    piece.error = current_error();
    complete(piece);
    return;
  }
  // The reference outlasts the push: after it the thread may end and take the inbox along.
  piece.io->on_end([&piece, self = progress_.shared_from_this()](Ticket const&) {
    self->inbox().push(piece.ended_notice);
  });
}

void Mover::issue_host(TransferPiece& piece)
{
  piece.copy_destination = pointer_to(destination_address(piece));
  piece.copy_source      = pointer_to(source_address(piece));
  piece.ended_notice     = {NoticeKind::copied, &piece, nullptr};
  try {
    copies_.submit({[](void* subject) noexcept {
                      auto& copied = *static_cast<TransferPiece*>(subject);
                      std::memcpy(copied.copy_destination, copied.copy_source, copied.nbytes);
                      copied.progress->inbox().push(copied.ended_notice);
                    },
                    &piece});
  } catch (...) {
    piece.error = current_error();
    complete(piece);
  }
}

}  // namespace datapath
