// SPDX-License-Identifier: Apache-2.0
#include "streams/lane.hpp"

#include "streams/clock.hpp"
#include "streams/transfer.hpp"

#include <algorithm>

namespace datapath {

namespace {

bool later(Lane::Entry const& a, Lane::Entry const& b)
{ return b.order.before(a.order); }

}  // namespace

void Lane::push(Entry entry)
{
  heap_.push_back(std::move(entry));
  std::push_heap(heap_.begin(), heap_.end(), later);
}

Lane::Entry Lane::pop()
{
  std::pop_heap(heap_.begin(), heap_.end(), later);
  auto entry = std::move(heap_.back());
  heap_.pop_back();
  return entry;
}

bool Lane::fits(std::uint64_t nbytes, bool waiting) const noexcept
{
  auto const count = waiting ? waiting_count_ : ready_count_;
  auto const bytes = waiting ? waiting_bytes_ : ready_bytes_;
  return count == 0 || (bytes < credits_ && nbytes <= credits_ - bytes);
}

void Lane::begin(std::uint64_t nbytes, bool waiting, std::uint64_t now)
{
  (waiting ? waiting_bytes_ : ready_bytes_) += nbytes;
  ++(waiting ? waiting_count_ : ready_count_);
  std::lock_guard const lock{mutex_};
  if (inflight_++ == 0) { busy_since_ = now; }
  inflight_bytes_ += nbytes;
  peak_inflight_bytes_ = std::max(peak_inflight_bytes_, inflight_bytes_);
}

void Lane::end(std::uint64_t nbytes, bool waiting, std::uint64_t moved, std::uint64_t now)
{
  (waiting ? waiting_bytes_ : ready_bytes_) -= nbytes;
  --(waiting ? waiting_count_ : ready_count_);
  std::lock_guard const lock{mutex_};
  if (--inflight_ == 0) { busy_ += now - busy_since_; }
  inflight_bytes_ -= nbytes;
  bytes_ += moved;
}

void Lane::transfer_ended(bool late)
{
  std::lock_guard const lock{mutex_};
  ++transfers_;
  if (late) { ++late_; }
}

dp_lane_stats Lane::stats() const
{
  std::lock_guard const lock{mutex_};
  dp_lane_stats stats{};
  stats.size           = sizeof(stats);
  stats.queued         = queued_.load(std::memory_order_relaxed);
  stats.inflight_bytes = inflight_bytes_;
  stats.bytes          = bytes_;
  stats.transfers      = transfers_;
  stats.late           = late_;
  stats.busy           = busy_ + (inflight_ == 0 ? 0 : monotonic_now() - busy_since_);
  return stats;
}

void Lane::describe(JsonWriter& json) const
{
  auto const now = stats();
  auto const gb_per_second =
    now.busy == 0 ? 0.0 : static_cast<double>(now.bytes) / static_cast<double>(now.busy);
  std::lock_guard const lock{mutex_};
  json.object()
    .field("lane", lane_name(id_))
    .field("credits", credits_)
    .field("queued", now.queued)
    .field("inflight", inflight_)
    .field("inflight_bytes", now.inflight_bytes)
    .field("peak_inflight_bytes", peak_inflight_bytes_)
    .field("bytes", now.bytes)
    .field("transfers", now.transfers)
    .field("late", now.late)
    .field("busy_ns", now.busy)
    .field("gb_per_second", gb_per_second)
    .end();
}

}  // namespace datapath
