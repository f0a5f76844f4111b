// SPDX-License-Identifier: Apache-2.0
#include "streams/mover.hpp"

#include "streams/progress.hpp"

#include <algorithm>

namespace datapath {

namespace {

// Copies gain nothing from a priority of their own, but streams of another priority never share a hardware
// queue with a caller's default streams, where a wait for a flag could stand in front of the copy that sets it.
constexpr int copy_priority   = 2;
constexpr int kernel_priority = 0;

}  // namespace

Mover::Mover(Ref<Device> device, Progress& progress, ProgressOptions const& options)
  : device_{std::move(device)},
    progress_{progress},
    chunks_per_transfer_{options.chunks},
    staging_{device_, options.pool, options.chunk_bytes, options.chunks},
    copies_{"dp-copy", options.copy_threads}
{
  for (std::size_t index = 0; index < lane_count; ++index) {
    lanes_[index] = std::make_unique<Lane>(static_cast<LaneId>(index), options.credits);
  }
  for (auto const id : {LaneId::h2d, LaneId::d2h, LaneId::kernel}) {
    auto const index     = static_cast<std::size_t>(id);
    auto const priority  = id == LaneId::kernel ? kernel_priority : copy_priority;
    device_lanes_[index] = std::make_unique<DeviceLane>(device_, priority);
    streams_[index]      = device_lanes_[index]->main().stream;
  }
}

void Mover::shut_down()
{
  copies_.join();
  for (auto& lane : device_lanes_) { lane.reset(); }
  staging_.shut_down();
}

bool Mover::needs_polling() const noexcept
{
  return !gated_.empty() || !unpoisoned_.empty() ||
         (!chunk_waiters_.empty() && staging_.has_none()) ||
         std::any_of(device_lanes_.begin(), device_lanes_.end(), [](auto const& lane) {
           return lane && !lane->idle();
         });
}

void Mover::describe(JsonWriter& json) const
{
  json.field("device", device_->name()).array("lanes");
  for (auto const& lane : lanes_) { lane->describe(json); }
  json.end();
  staging_.describe(json);
}

}  // namespace datapath
