// SPDX-License-Identifier: Apache-2.0
/// @file
/// The work that uses a range of memory: an event for each stream that was named.
#pragma once

#include "streams/device.hpp"

#include <mutex>
#include <utility>
#include <vector>

namespace datapath {

/// Work that may still use memory which its holder has let go of.
class PendingUses {
 public:
  enum class State : std::uint8_t {
    passed,
    pending,
    lost  ///< The device failed; whether the work has ended cannot be known any more.
  };

  struct Use {
    Ref<Device> device;
    dp_stream stream;
    EventHandle event;
  };

  PendingUses() = default;
  explicit PendingUses(std::vector<Use> uses) : uses_{std::move(uses)} {}

  [[nodiscard]] bool empty() const noexcept { return uses_.empty(); }
  /// Asks the events and drops those that passed; once lost, always lost.
  [[nodiscard]] State poll() noexcept;
  /// Blocks until all have passed; throws the device's error.
  void wait();

 private:
  std::vector<Use> uses_;
  bool lost_{false};
};

/// Collects uses while the memory is held; from any thread.
class UseRecorder {
 public:
  /// A later record for the same stream takes the place of one whose work has passed. Where many have
  /// not, the stream first waits for the oldest of its own, and both become one.
  void record(Device& device, dp_stream stream);
  [[nodiscard]] PendingUses take() noexcept;

 private:
  std::mutex mutex_;
  std::vector<PendingUses::Use> uses_;
};

}  // namespace datapath
