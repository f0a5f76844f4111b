// SPDX-License-Identifier: Apache-2.0
/// @file
/// A lane: a queue in order of urgency, a bound on the bytes in flight, and exact counts.
#pragma once

#include "streams/lane_id.hpp"
#include "streams/order.hpp"
#include "support/json.hpp"
#include "support/ref.hpp"

#include <datapath/datapath.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace datapath {

class Transfer;
struct TransferPiece;

/// The queue and the credits belong to the progress thread; the counts may be read from any thread.
class Lane {
 public:
  /// What waits for the lane: a transfer with pieces to make, or one piece on its second hop.
  struct Entry {
    Order order;
    Ref<Transfer> transfer;
    TransferPiece* piece{nullptr};
  };

  Lane(LaneId id, std::uint64_t credits) : id_{id}, credits_{credits} {}

  [[nodiscard]] LaneId id() const noexcept { return id_; }

  void push(Entry entry);
  [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }
  [[nodiscard]] Entry const& top() const noexcept { return heap_.front(); }
  Entry pop();

  /// More than the credits goes only when nothing else is in flight. Work that waits for other streams
  /// has credits of its own, so that it cannot keep ready work from going.
  [[nodiscard]] bool fits(std::uint64_t nbytes, bool waiting) const noexcept;
  void begin(std::uint64_t nbytes, bool waiting, std::uint64_t now);
  void end(std::uint64_t nbytes, bool waiting, std::uint64_t moved, std::uint64_t now);

  /// A transfer that starts on this lane was submitted, or has started, or never will.
  void enqueued() noexcept { queued_.fetch_add(1, std::memory_order_relaxed); }
  void dequeued() noexcept { queued_.fetch_sub(1, std::memory_order_relaxed); }
  void transfer_ended(bool late);

  [[nodiscard]] dp_lane_stats stats() const;
  void describe(JsonWriter& json) const;

 private:
  LaneId id_;
  std::uint64_t credits_;
  std::vector<Entry> heap_;
  std::uint64_t ready_bytes_{0};
  std::uint64_t ready_count_{0};
  std::uint64_t waiting_bytes_{0};
  std::uint64_t waiting_count_{0};

  std::atomic<std::uint64_t> queued_{0};
  mutable std::mutex mutex_;  // guards what follows
  std::uint64_t inflight_{0};
  std::uint64_t inflight_bytes_{0};
  std::uint64_t peak_inflight_bytes_{0};
  std::uint64_t bytes_{0};
  std::uint64_t transfers_{0};
  std::uint64_t late_{0};
  std::uint64_t busy_{0};
  std::uint64_t busy_since_{0};
};

}  // namespace datapath
