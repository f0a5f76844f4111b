// SPDX-License-Identifier: Apache-2.0
/// @file
/// The scheduler of a device: takes transfers, says how its lanes are doing. The work is Progress's.
#pragma once

#include "streams/progress.hpp"
#include "support/fork.hpp"

#include <memory>
#include <string>

namespace datapath {

/// Zero and null mean the setting's default.
struct SchedulerOptions {
  std::uint32_t chunks{0};
  std::uint64_t chunk_bytes{0};
  std::uint64_t credits{0};
  Ref<Pool> pool;
};

class Scheduler : public RefCounted {
 public:
  Scheduler(Ref<Device> device, SchedulerOptions const& options);
  /// What is in flight goes on without it.
  ~Scheduler() override;

  /// Returns at once. The owner is released in any case, also when this throws.
  [[nodiscard]] Ref<Ticket> transfer(TransferRequest&& request);
  /// Waits for what is in flight, at most the setting streams.close_timeout; what has not started by then
  /// fails. Throws DP_ERR_IO if something started and does not end: its memory is never reused.
  void close();
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] dp_stream stream(std::int32_t lane) const;
  [[nodiscard]] dp_lane_stats lane_stats(std::int32_t lane) const;

 private:
  ForkGuard fork_;
  Ref<Device> device_;
  ProgressOptions options_;
  std::shared_ptr<Progress> progress_;
  std::atomic<bool> closed_{false};
};

}  // namespace datapath
