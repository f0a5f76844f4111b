// SPDX-License-Identifier: Apache-2.0
/// @file
/// Events and captures of the null device.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

namespace datapath {

/// A graph capture: begun on one stream, joined by those that wait for its events, over for all at
/// once.
struct NullCapture {
  std::atomic<bool> active{true};
};

/// An event counts its records. A wait captures the count at its call, so that a later record does
/// not move it, as with CUDA's events; an event without a record has passed.
class NullEvent {
 public:
  /// The generation of a record that is being enqueued; ends an earlier record inside a capture.
  [[nodiscard]] std::uint64_t begin_record();
  /// The record is inside a capture: nothing will ever execute it.
  void record_captured(std::shared_ptr<NullCapture> capture);
  [[nodiscard]] std::shared_ptr<NullCapture> capture() const;

  [[nodiscard]] std::uint64_t recorded() const;
  [[nodiscard]] bool passed() const;

  /// The stream reached the record. `aborted`: only because the device goes away.
  void pass(std::uint64_t generation, bool aborted);
  /// Blocks until that record was reached; false if the stream was aborted before it.
  [[nodiscard]] bool wait(std::uint64_t generation);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<NullCapture> capture_;
  std::uint64_t recorded_{0};
  std::uint64_t passed_{0};
  bool aborted_{false};
};

}  // namespace datapath
