// SPDX-License-Identifier: Apache-2.0
#include "memory/uses.hpp"

#include "support/error.hpp"
#include "support/log.hpp"

#include <algorithm>

namespace datapath {

namespace {

/// CU_STREAM_PER_THREAD: one number, but another stream on each thread.
constexpr dp_stream per_thread_stream = 2;

}  // namespace

PendingUses::State PendingUses::poll() noexcept
{
  if (lost_) { return State::lost; }
  try {
    std::erase_if(uses_, [](Use const& use) {
      auto const passed = use.device->query(use.event);
      if (passed) { use.device->release_event(use.event); }
      return passed;
    });
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
  auto const found = std::ranges::find_if(uses_, [&](PendingUses::Use const& use) {
    return use.device.get() == &device && use.stream == stream &&
           (stream != per_thread_stream || device.query(use.event));
  });
  if (found != uses_.end()) {
    device.record(found->event, stream);
    return;
  }
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
