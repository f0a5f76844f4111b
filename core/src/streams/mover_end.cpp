// SPDX-License-Identifier: Apache-2.0
/// @file
/// The end of a transfer: drained first, then poisoned if somebody waits deferred, then flags, owner, ticket.
#include "streams/clock.hpp"
#include "streams/mover.hpp"
#include "streams/progress.hpp"
#include "support/log.hpp"

#include <cstring>

namespace datapath {

namespace {

constexpr std::uint8_t poison_byte = 0xFF;

}  // namespace

void Mover::fail(Transfer& transfer, ErrorInfo error)
{
  auto& state = transfer.state;
  if (state.finished) { return; }
  if (!state.error) { state.error = std::move(error); }
  auto const pieces = state.pieces;
  for (auto* const piece : pieces) {
    if (!piece->issued) { drop(*piece); }
  }
  try_finish(transfer);
}

void Mover::try_finish(Transfer& transfer)
{
  auto const& state = transfer.state;
  auto const well   = state.all_made && !state.ahead;
  if (!state.finished && state.pieces.empty() && (state.error || well)) { finish(transfer); }
}

void Mover::finish(Transfer& transfer)
{
  auto& state    = transfer.state;
  state.finished = true;
  if (!state.error && state.moved != state.end) {
    state.error = ErrorInfo{
      DP_ERR_IO,
      "the source file changed its size while it was read: the transfer moved " +
        std::to_string(state.moved) + " bytes, but ends at byte " + std::to_string(state.end),
      {},
      -1,
      0,
      0};
  }
  if (!state.started) { lane(transfer.first_lane()).dequeued(); }
  state.flags = transfer.decide(state.error);
  if (state.error && !state.flags.empty()) {
    // What its streams still do with the destination is not to be disturbed.
    unpoisoned_.push_back(Ref<Transfer>::share(&transfer));
    return;
  }
  end(transfer);
}

bool Mover::poll_unpoisoned()
{
  auto any = false;
  for (std::size_t index = 0; index < unpoisoned_.size();) {
    try {
      if (!given_up_ && !streams_passed(*unpoisoned_[index])) {
        ++index;
        continue;
      }
    } catch (...) {
      // Nothing runs on the device any more.
    }
    auto const transfer = std::exchange(unpoisoned_[index], std::move(unpoisoned_.back()));
    unpoisoned_.pop_back();
    if (!start_poison(*transfer)) { end(*transfer); }
    any = true;
  }
  return any;
}

bool Mover::start_poison(Transfer& transfer)
{
  auto const& request = transfer.request;
  if (!request.destination.is_memory() || request.nbytes == 0) { return false; }
  auto piece      = std::make_unique<TransferPiece>();
  piece->transfer = &transfer;
  piece->progress = &progress_;
  piece->nbytes   = request.nbytes;
  piece->poison   = true;
  piece->issued   = true;
  try {
    if (request.destination.kind == DP_DEVICE) {
      auto& queue =
        device_lane(request.source.kind == DP_DEVICE ? LaneId::kernel : LaneId::h2d)->main();
      auto const event = device_->acquire_event();
      try {
        device_->fill_async(request.destination.address, poison_byte, request.nbytes, queue.stream);
        device_->record(event, queue.stream);
      } catch (...) {
        device_->release_event(event);
        throw;
      }
      queue.operations.push_back({piece.get(), event});
    } else {
      piece->copy_destination = reinterpret_cast<std::byte*>(request.destination.address);
      piece->ended_notice     = {NoticeKind::copied, piece.get(), nullptr};
      copies_.submit({[](void* subject) noexcept {
                        auto& poisoned = *static_cast<TransferPiece*>(subject);
                        std::memset(poisoned.copy_destination, poison_byte, poisoned.nbytes);
                        poisoned.progress->inbox().push(poisoned.ended_notice);
                      },
                      piece.get()});
    }
  } catch (...) {
    log(LogLevel::error,
        "streams",
        "the destination of a failed transfer could not be poisoned: " + current_error().message);
    return false;
  }
  transfer.state.pieces.push_back(piece.release());
  return true;
}

void Mover::end(Transfer& transfer)
{
  auto& state = transfer.state;
  state.ended = true;
  // Its last reference may be the caller's, who drops it as soon as the ticket ends.
  auto const self = std::move(live_[state.live_index]);
  if (state.live_index + 1 != live_.size()) {
    live_[state.live_index]                   = std::move(live_.back());
    live_[state.live_index]->state.live_index = state.live_index;
  }
  live_.pop_back();
  for (auto const event : std::exchange(transfer.after_events, {})) {
    device_->release_event(event);
  }

  auto const late = transfer.request.deadline != 0 && monotonic_now() > transfer.request.deadline;
  lane(state.planned ? state.hops[0] : transfer.first_lane()).transfer_ended(late);
  if (state.planned && state.hop_count == 2) { lane(state.hops[1]).transfer_ended(late); }
  for (auto& flag : std::exchange(state.flags, {})) { progress_.flags().set(std::move(flag)); }

  // The ends before the ticket: who waits for it may count on their release.
  if (state.held == 0) { transfer.request.owner.release(); }
  transfer.request.source      = {};
  transfer.request.destination = {};
  if (state.error) {
    transfer.fail(*state.error);
  } else {
    transfer.complete(state.moved);
  }
  if (auto const event = std::exchange(state.device_event, 0); event != 0) {
    transfer.when_event_unused([device = device_, event] { device->release_event(event); });
  }
  progress_.transfer_gone();
}

void Mover::give_up()
{
  given_up_      = true;
  auto const all = live_;
  for (auto const& transfer : all) {
    auto const& state = transfer->state;
    if (state.finished || (state.started && !state.ahead)) { continue; }
    fail(*transfer,
         ErrorInfo{
           DP_ERR_CLOSED,
           "the scheduler was closed before the transfer could start: what it was to follow did "
           "not end in time",
           {},
           -1,
           0,
           0});
  }
}

}  // namespace datapath
