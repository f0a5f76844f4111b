// SPDX-License-Identifier: Apache-2.0
#include "streams/transfer.hpp"

#include "streams/progress.hpp"

namespace datapath {

Transfer::Transfer(std::shared_ptr<Progress> owner_progress, TransferRequest&& asked)
  : request{std::move(asked)}, progress_{std::move(owner_progress)}
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
  std::lock_guard const lock{mutex_};
  if (decided_error_) { throw Error{*decided_error_}; }
  if (decided_) { return false; }
  flags_.reserve(flags_.size() + 1);
  flags_.push_back(progress_->flags().wait(device, stream));
  return true;
}

void Transfer::set_flags_on(Device& device, dp_stream stream)
{
  std::lock_guard const lock{mutex_};
  for (auto& flag : flags_) {
    if (flag.device.get() != &device) { continue; }
    device.write_value32(stream, flag.device_address, flag.value);
    flag.set_by_stream = true;
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
  return std::exchange(flags_, {});
}

}  // namespace datapath
