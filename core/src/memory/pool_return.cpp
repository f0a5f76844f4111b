// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a pool's memory comes back: at once, or when the events of the work that used it have
/// passed.
#include "memory/pool.hpp"
#include "memory/pool_list.hpp"
#include "memory/reaper.hpp"
#include "support/error.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace datapath {

void Pool::give_back(FreeRanges::Range range, std::uint64_t nbytes, PendingUses uses) noexcept
{
  auto const state  = uses.poll();
  auto const length = range.end - range.start;
  bool closed       = false;
  {
    Books const books{mutex_};
    counts_.allocated -= length;
    counts_.requested -= nbytes;
    --counts_.live_buffers;
    if (length != 0) {
      if (state == PendingUses::State::passed) {
        insert_free(range);
      } else {
        counts_.pending += length;
        pending_.push_back({range, std::move(uses), state == PendingUses::State::lost});
      }
    }
    closed = closed_;
  }
  returned_.notify_all();
  if (closed) { give_back_when_settled(); }
}

void Pool::insert_free(FreeRanges::Range range)
{
  ++returns_;
  auto const& piece = std::prev(pieces_.upper_bound(range.start))->second;
  free_.insert(range, {piece.start, piece.end});
}

bool Pool::poll_pending(std::size_t most)
{
  bool returned = false;
  for (auto pending = pending_.begin(); pending != pending_.end() && most != 0; --most) {
    auto const state = pending->lost ? PendingUses::State::lost : pending->uses.poll();
    pending->lost    = state == PendingUses::State::lost;
    if (state == PendingUses::State::passed) {
      counts_.pending -= pending->range.end - pending->range.start;
      insert_free(pending->range);
      pending  = pending_.erase(pending);
      returned = true;
    } else {
      ++pending;
    }
  }
  return returned;
}

Pool::Returned Pool::wait_for_oldest(std::uint64_t seen, bool may_wait)
{
  Books books{mutex_};
  // What came back after the caller looked must be looked at first.
  if (returns_ != seen) { return Returned::perhaps; }
  auto const oldest = std::ranges::find_if(pending_, [](Pending const& p) { return !p.lost; });
  if (oldest == pending_.end() && waiting_ == 0) { return Returned::never; }
  if (!may_wait) { return Returned::not_yet; }
  if (oldest == pending_.end()) {
    // Somebody else waits for what there is; whoever is first takes it.
    returned_.wait(books);
    return Returned::perhaps;
  }
  auto pending = std::move(*oldest);
  pending_.erase(oldest);
  ++waiting_;
  books.unlock();
  auto const finish = [&](bool passed) {
    books.lock();
    --waiting_;
    if (passed) {
      counts_.pending -= pending.range.end - pending.range.start;
      insert_free(pending.range);
    } else {
      pending.lost = true;
      pending_.push_back(std::move(pending));
    }
    books.unlock();
    returned_.notify_all();
  };
  try {
    pending.uses.wait();
  } catch (...) {
    finish(false);
    throw;
  }
  finish(true);
  return Returned::perhaps;
}

bool Pool::settle()
{
  Books const books{mutex_};
  poll_pending(pending_.size());
  return waiting_ == 0 && std::ranges::all_of(pending_, [](Pending const& p) { return p.lost; });
}

bool Pool::has_lost() const noexcept
{
  return std::ranges::any_of(pending_, [](Pending const& p) { return p.lost; });
}

void Pool::give_back_when_settled() noexcept
{
  auto const settled = settle();
  (void)trim();
  if (settled) { return; }
  {
    Books const books{mutex_};
    if (std::exchange(reaping_, true)) { return; }
  }
  reap([self = Ref<Pool>::share(this)] {
    {
      Books const books{self->mutex_};
      self->reaping_ = false;
    }
    if (self->settle()) {
      (void)self->trim();
      return true;
    }
    Books const books{self->mutex_};
    // A release meanwhile may have started another watch, which then goes on instead.
    return std::exchange(self->reaping_, true);
  });
}

void Pool::last_reference_gone() const noexcept
{
  // In a child neither the memory nor the device's registration is there.
  if (fork_.inherited()) { return; }
  unlist_pool(this);
  auto* const self = const_cast<Pool*>(this);
  auto const end   = [self] {
    if (!self->settle()) { return false; }
    // What a failed device may still write to stays mapped for ever.
    if (!self->has_lost()) { delete self; }
    return true;
  };
  if (!end()) { reap(end); }
}

void Pool::check_invariants()
{
  Books const books{mutex_};
  auto const holds = [](bool condition, char const* what) {
    if (!condition) { fail(DP_ERR_INTERNAL, std::string{"pool: "} + what); }
  };
  std::uint64_t backed = 0;
  std::uint64_t pinned = 0;
  for (auto const& [start, piece] : pieces_) {
    backed += piece.nbytes();
    pinned += piece.pinned ? piece.nbytes() : 0;
    holds(unbacked_.overlap({piece.start, piece.end}) == 0, "a piece counts as unbacked");
  }
  holds(backed == counts_.backed && pinned == counts_.pinned, "backed bytes are miscounted");
  holds(backed + unbacked_.total() == usable_.end - usable_.start, "addresses are lost");
  holds(free_.total() + counts_.allocated + counts_.pending == backed, "backed bytes are lost");
  std::uint64_t before = 0;
  for (auto const& [start, end] : free_.by_start()) {
    auto const piece = pieces_.upper_bound(start);
    holds(piece != pieces_.begin() && end <= std::prev(piece)->second.end, "a free range spans");
    holds(start != before || pieces_.contains(start), "free neighbours are apart");
    before = end;
  }
}

}  // namespace datapath
