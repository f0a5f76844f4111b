// SPDX-License-Identifier: Apache-2.0
#include "memory/uses.hpp"

#include "support/error.hpp"
#include "support/log.hpp"

#include <algorithm>

namespace datapath {

namespace {

/// Uses by one stream that are kept apart; more are put behind the oldest of them.
constexpr std::ptrdiff_t uses_a_stream = 8;
/// From so many uses on those that have passed are looked for.
constexpr std::size_t many_uses = 64;

void drop_passed(std::vector<PendingUses::Use>& uses)
{
  // By swapping, so that an error of a device leaves every use in place.
  auto kept = uses.begin();
  for (auto use = uses.begin(); use != uses.end(); ++use) {
    if (!use->device->query(use->event)) { std::iter_swap(kept++, use); }
  }
  for (auto use = kept; use != uses.end(); ++use) { use->device->release_event(use->event); }
  uses.erase(kept, uses.end());
}

}  // namespace

PendingUses::State PendingUses::poll() noexcept
{
  if (lost_) { return State::lost; }
  try {
    drop_passed(uses_);
  } catch (Error const& error) {
    lost_ = true;
    log(LogLevel::error,
        "memory",
        std::string{"memory is kept for ever, since the work on it cannot be followed: "} +
          error.what());
    return State::lost;
  }
  return uses_.empty() ? State::passed : State::pending;
}

void PendingUses::wait()
{
  while (!uses_.empty()) {
    auto const& use = uses_.back();
    use.device->synchronize_event(use.event);
    use.device->release_event(use.event);
    uses_.pop_back();
  }
}

void UseRecorder::record(Device& device, dp_stream stream)
{
  if (device.is_capturing(stream)) {
    fail(DP_ERR_UNSUPPORTED,
         "record_use: the stream records a graph, whose work runs at each launch and cannot be "
         "followed; keep the buffer for as long as the graph lives");
  }
  std::lock_guard const lock{mutex_};
  auto const same = [&](PendingUses::Use const& use) {
    return use.device.get() == &device && use.stream == stream;
  };
  // One handle is not always one stream: the driver gives a destroyed stream's to a new one, and the
  // per-thread default stream is another on each thread. So only what has passed may be replaced.
  auto found = std::ranges::find_if(
    uses_, [&](PendingUses::Use const& use) { return same(use) && device.query(use.event); });
  if (found == uses_.end() && std::ranges::count_if(uses_, same) >= uses_a_stream) {
    found = std::ranges::find_if(uses_, same);
    device.wait_event(stream, found->event);
  }
  if (found != uses_.end()) {
    device.record(found->event, stream);
    std::rotate(found, found + 1, uses_.end());
    return;
  }
  if (uses_.size() >= many_uses) { drop_passed(uses_); }
  uses_.reserve(uses_.size() + 1);
  auto const event = device.acquire_event();
  try {
    device.record(event, stream);
  } catch (...) {
    device.release_event(event);
    throw;
  }
  uses_.push_back({Ref<Device>::share(&device), stream, event});
}

PendingUses UseRecorder::take() noexcept
{
  std::lock_guard const lock{mutex_};
  return PendingUses{std::exchange(uses_, {})};
}

}  // namespace datapath
