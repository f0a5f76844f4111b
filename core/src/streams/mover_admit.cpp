// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a transfer has to wait for before it may enter its lane.
#include "streams/mover.hpp"
#include "streams/pinned.hpp"
#include "streams/plan.hpp"
#include "streams/progress.hpp"

#include <algorithm>

namespace datapath {

void Mover::admit(Ref<Transfer> transfer)
{
  auto& admitted            = *transfer;
  admitted.state.live_index = live_.size();
  live_.push_back(std::move(transfer));

  auto const& tickets = admitted.request.after_tickets;
  if (tickets.empty()) {
    gate(admitted);
    return;
  }
  // One more than there are, so that the count cannot reach zero while it is being set up.
  admitted.open_tickets.store(tickets.size() + 1, std::memory_order_relaxed);
  auto const arrived = [self   = progress_.shared_from_this(),
                        waiter = Ref<Transfer>::share(&admitted)](Ticket const&) {
    if (waiter->open_tickets.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      waiter->retain();
      self->inbox().push(waiter->tickets_notice);
    }
  };
  for (auto const& ticket : tickets) { ticket->on_end(arrived); }
  if (admitted.open_tickets.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    tickets_ended(admitted);
  }
}

void Mover::tickets_ended(Transfer& transfer)
{
  if (transfer.state.finished) { return; }
  transfer.followed_ended();
  // Dropped at once: a long chain of kept tickets would be destroyed by recursion.
  auto const tickets = std::exchange(transfer.request.after_tickets, {});
  for (auto const& ticket : tickets) {
    if (auto error = ticket->error()) {
      error->message = "not started, since work that it was to follow failed: " + error->message;
      fail(transfer, std::move(*error));
      return;
    }
  }
  gate(transfer);
}

void Mover::gate(Transfer& transfer)
{
  auto& state         = transfer.state;
  auto const& request = transfer.request;
  try {
    auto const& host = request.source.kind == DP_HOST ? request.source : request.destination;
    auto const plan =
      plan_transfer(request.destination,
                    request.source,
                    host.kind == DP_HOST && is_pinned(*device_, host.address, request.nbytes));
    state.hops      = plan.hops;
    state.hop_count = plan.hop_count;
    state.whole     = plan.whole;
    state.planned   = true;
    if (streams_passed(transfer) || plan.whole) {
      start(transfer);
    } else {
      park_gated(transfer);
      if (may_read_ahead(transfer)) {
        state.ahead = true;
        start(transfer);
      }
    }
  } catch (...) {
    fail(transfer, current_error());
  }
}

bool Mover::may_read_ahead(Transfer const& transfer) const noexcept
{
  auto const& state = transfer.state;
  // Streams can guard device memory only, here the destination; nothing touches that before the second hop.
  return state.hop_count == 2 && state.hops[0] == LaneId::read && state.hops[1] == LaneId::h2d &&
         transfer.request.nbytes > 0 && !Transfer::streams_wait_for_writes();
}

void Mover::let_through(Transfer& transfer)
{
  auto& state = transfer.state;
  if (!state.ahead) {
    start(transfer);
    return;
  }
  state.ahead = false;
  staging_.no_longer_ahead(state.chunks);
  for (auto* const piece : state.pieces) {
    if (!piece->issued) { push_piece(*piece); }
  }
  if (std::exchange(state.ahead_stalled, false)) { start(transfer); }
  try_finish(transfer);
}

void Mover::push_piece(TransferPiece& piece)
{
  auto& transfer = *piece.transfer;
  auto order     = transfer.order;
  order.offset   = piece.offset;
  lane(transfer.state.hops[piece.hop]).push({order, Ref<Transfer>::share(&transfer), &piece});
}

void Mover::start(Transfer& transfer)
{
  auto& state = transfer.state;
  if (transfer.request.nbytes == 0 && !state.whole) {
    state.all_made = true;
    try_finish(transfer);
    return;
  }
  lane(state.hops[0]).push({transfer.order, Ref<Transfer>::share(&transfer), nullptr});
}

bool Mover::streams_passed(Transfer& transfer)
{
  auto& events = transfer.after_events;
  while (!events.empty()) {
    if (!device_->query(events.back())) {
      transfer.state.streams_passed = false;
      return false;
    }
    device_->release_event(events.back());
    events.pop_back();
  }
  transfer.state.streams_passed = true;
  return true;
}

void Mover::park_gated(Transfer& transfer)
{
  auto const place = std::upper_bound(
    gated_.begin(),
    gated_.end(),
    transfer.order,
    [](Order const& order, Ref<Transfer> const& other) { return order.before(other->order); });
  gated_.insert(place, Ref<Transfer>::share(&transfer));
}

bool Mover::poll_staging()
{
  if (chunk_waiters_.empty() || !staging_.has_none() || !staging_.make_first()) { return false; }
  next_chunk_waiter();
  return true;
}

bool Mover::poll_gates()
{
  auto moved = false;
  std::vector<Ref<Transfer>> still_gated;
  // Streams pass in order: behind a closed gate, later ones of the same streams are closed too. An
  // earlier one that stands behind it for its priority need not be: the stream may wait for just that.
  std::vector<Transfer const*> closed;
  for (auto& waiter : std::exchange(gated_, {})) {
    auto& state       = waiter->state;
    auto const& after = waiter->request.after_streams;
    if (state.finished || state.error) { continue; }
    auto const known_closed = std::any_of(closed.begin(), closed.end(), [&](auto const* other) {
      return other->order.sequence < waiter->order.sequence &&
             other->request.after_streams == after;
    });
    try {
      if (!known_closed && streams_passed(*waiter)) {
        let_through(*waiter);
        moved = true;
        continue;
      }
      closed.push_back(waiter.get());
      if (state.whole && lane(state.hops[0]).fits(waiter->request.nbytes, true) &&
          device_lane(state.hops[0])->side(after, waiter->order.sequence) != nullptr) {
        start(*waiter);
        moved = true;
        continue;
      }
      if (state.ahead_stalled && may_stage_ahead()) {
        state.ahead_stalled = false;
        start(*waiter);
        moved = true;
      }
    } catch (...) {
      fail(*waiter, current_error());
      continue;
    }
    still_gated.push_back(std::move(waiter));
  }
  // Starting and failing never gate anything, so nothing came in meanwhile.
  gated_ = std::move(still_gated);
  return moved;
}

}  // namespace datapath
