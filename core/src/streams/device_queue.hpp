// SPDX-License-Identifier: Apache-2.0
/// @file
/// The streams of one device lane and the work in flight on them.
#pragma once

#include "streams/device.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace datapath {

struct TransferPiece;

/// One stream; its work ends in order.
struct DeviceQueue {
  struct Operation {
    TransferPiece* piece;
    EventHandle event;
  };
  dp_stream stream{0};
  std::deque<Operation> operations;
  /// Streams that the work in here waits for; all work in one queue waits for the same.
  std::vector<dp_stream> after;
};

/// A main stream for work that can start at once, which is the lane's own stream for callers too, and a
/// few side streams for work that waits for other streams, so that it never holds up what is ready.
class DeviceLane {
 public:
  static constexpr std::size_t most_sides = 4;

  DeviceLane(Ref<Device> device, int priority);
  ~DeviceLane();
  DeviceLane(DeviceLane const&)            = delete;
  DeviceLane& operator=(DeviceLane const&) = delete;

  [[nodiscard]] DeviceQueue& main() noexcept { return *queues_.front(); }
  /// A side stream where earlier work behind `after` waits already, or a free one; nullptr if there
  /// is none. Never one with later work: what that waits for may wait for this `sequence`'s transfer.
  [[nodiscard]] DeviceQueue* side(std::vector<dp_stream> const& after, std::uint64_t sequence);
  [[nodiscard]] std::vector<std::unique_ptr<DeviceQueue>>& queues() noexcept { return queues_; }
  [[nodiscard]] bool idle() const noexcept;

 private:
  Ref<Device> device_;
  int priority_;
  std::vector<std::unique_ptr<DeviceQueue>> queues_;
};

}  // namespace datapath
