// SPDX-License-Identifier: Apache-2.0
#include "streams/transfer.hpp"

#include "streams/progress.hpp"

#include <algorithm>
#include <utility>

namespace datapath {

namespace {

std::atomic<std::uint64_t> awaited_writes{0};

bool comes_after_a_write(TransferRequest const& request)
{
  auto const& tickets = request.after_tickets;
  return request.destination.is_disk() ||
         std::any_of(tickets.begin(), tickets.end(), [](auto const& ticket) {
           return ticket->awaits_write();
         });
}

}  // namespace

Transfer::Transfer(std::shared_ptr<Progress> owner_progress, TransferRequest&& asked)
  : Ticket{comes_after_a_write(asked)},
    request{std::move(asked)},
    to_disk_{request.destination.is_disk()},
    progress_{std::move(owner_progress)}
{
  order.priority   = request.priority;
  order.deadline   = request.deadline == 0 ? Order::no_deadline : request.deadline;
  state.end        = request.nbytes;
  submitted_notice = {NoticeKind::submitted, this, nullptr};
  tickets_notice   = {NoticeKind::tickets_ended, this, nullptr};
}

LaneId Transfer::first_lane() const noexcept
{
  auto const& source = request.source;
  if (source.is_disk()) { return LaneId::read; }
  auto const to = request.destination.kind;
  if (source.kind == DP_DEVICE) { return to == DP_DEVICE ? LaneId::kernel : LaneId::d2h; }
  if (to == DP_DEVICE) { return LaneId::h2d; }
  return to == DP_HOST ? LaneId::host : LaneId::write;
}

bool Transfer::wait_deferred(Device& device, dp_stream stream)
{
  // No lock is held over the driver's calls: where the stream's queue is full they block until a flag is
  // set, perhaps this transfer's, and the thread that sets it takes these locks.
  std::shared_ptr<Progress> progress;
  {
    std::lock_guard const lock{mutex_};
    if (decided_error_) { throw Error{*decided_error_}; }
    if (decided_) { return false; }
    progress = progress_;
  }
  auto const flag = progress->flags().reserve(device);
  if (!add_flag(flag)) {
    progress->flags().give_back(flag);
    if (auto const failure = error_if_decided()) { throw Error{*failure}; }
    return false;
  }
  progress->flags().wait(flag, stream);
  return true;
}

bool Transfer::add_flag(DeferredFlag const& flag)
{
  std::lock_guard const lock{mutex_};
  if (decided_) { return false; }
  if (!counted_ && awaits_write()) {
    counted_ = true;
    awaited_writes.fetch_add(1);
  }
  flags_.push_back(flag);
  return true;
}

void Transfer::followed_ended()
{
  if (to_disk_) { return; }
  std::lock_guard const lock{mutex_};
  follows_no_write();
  if (std::exchange(counted_, false)) { awaited_writes.fetch_sub(1); }
}

bool Transfer::streams_wait_for_writes() noexcept
{ return awaited_writes.load() != 0; }

std::optional<ErrorInfo> Transfer::error_if_decided() const
{
  std::lock_guard const lock{mutex_};
  return decided_error_;
}

void Transfer::set_flags_on(Device& device, dp_stream stream)
{
  std::vector<DeferredFlag> waited;
  {
    std::lock_guard const lock{mutex_};
    waited = flags_;
  }
  for (std::size_t i = 0; i < waited.size(); ++i) {
    if (waited[i].device.get() != &device) { continue; }
    device.write_value32(stream, waited[i].device_address, waited[i].value);
    // Others only add behind these, and `decide` is called by this thread.
    std::lock_guard const lock{mutex_};
    flags_[i].set_by_stream = true;
  }
}

std::vector<DeferredFlag> Transfer::decide(std::optional<ErrorInfo> const& error)
{
  // Dropped after the lock: a ticket that a caller keeps must not keep the scheduler's memory.
  std::shared_ptr<Progress> progress;
  std::lock_guard const lock{mutex_};
  decided_       = true;
  decided_error_ = error;
  progress.swap(progress_);
  if (std::exchange(counted_, false)) { awaited_writes.fetch_sub(1); }
  return std::exchange(flags_, {});
}

}  // namespace datapath
