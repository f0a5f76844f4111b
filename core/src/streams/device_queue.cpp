// SPDX-License-Identifier: Apache-2.0
#include "streams/device_queue.hpp"

#include "streams/transfer.hpp"
#include "support/per_process.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

namespace datapath {

namespace {

/// Main streams of CUDA devices are kept for the process: a caller may have made them known to an
/// allocator, which would use them long after the scheduler is gone.
class KeptStreams {
 public:
  static KeptStreams& instance()
  {
    static constinit PerProcess<KeptStreams> kept;
    return kept.get();
  }

  dp_stream take(Device& device, int priority)
  {
    std::lock_guard const lock{mutex_};
    auto& streams = streams_[{&device, priority}];
    if (streams.empty()) { return 0; }
    auto const stream = streams.back();
    streams.pop_back();
    return stream;
  }

  void keep(Ref<Device> device, int priority, dp_stream stream)
  {
    std::lock_guard const lock{mutex_};
    streams_[{device.get(), priority}].push_back(stream);
    // The device lives as long as its kept streams.
    (void)device.leak();
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<Device*, int>, std::vector<dp_stream>> streams_;
};

}  // namespace

DeviceLane::DeviceLane(Ref<Device> device, int priority)
  : device_{std::move(device)}, priority_{priority}
{
  auto queue    = std::make_unique<DeviceQueue>();
  queue->stream = device_->is_cuda() ? KeptStreams::instance().take(*device_, priority) : 0;
  if (queue->stream == 0) { queue->stream = device_->create_stream(priority); }
  queues_.push_back(std::move(queue));
}

DeviceLane::~DeviceLane()
{
  for (auto& queue : queues_) {
    if (device_->is_cuda() && queue == queues_.front()) {
      KeptStreams::instance().keep(device_, priority_, queue->stream);
    } else {
      device_->destroy_stream(queue->stream);
    }
  }
}

DeviceQueue* DeviceLane::side(std::vector<dp_stream> const& after, std::uint64_t sequence)
{
  DeviceQueue* free = nullptr;
  for (auto& queue : queues_) {
    if (queue == queues_.front()) { continue; }
    if (queue->operations.empty()) {
      free = queue.get();
    } else if (queue->after == after &&
               queue->operations.back().piece->transfer->order.sequence < sequence) {
      return queue.get();
    }
  }
  if (free == nullptr && queues_.size() <= most_sides) {
    auto queue    = std::make_unique<DeviceQueue>();
    queue->stream = device_->create_stream(priority_);
    queues_.push_back(std::move(queue));
    free = queues_.back().get();
  }
  if (free != nullptr) { free->after = after; }
  return free;
}

bool DeviceLane::idle() const noexcept
{
  return std::all_of(
    queues_.begin(), queues_.end(), [](auto const& queue) { return queue->operations.empty(); });
}

}  // namespace datapath
