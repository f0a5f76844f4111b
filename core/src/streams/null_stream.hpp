// SPDX-License-Identifier: Apache-2.0
/// @file
/// A stream of the null device: a queue of operations and the thread that carries them out in
/// order.
#pragma once

#include "streams/null_event.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

namespace datapath {

/// What all streams of one null device see.
struct NullClock {
  std::atomic<std::uint64_t> copy_delay{0};  ///< Nanoseconds that a copy lasts at least.
  std::atomic<bool> stopping{false};         ///< The device goes away: waits for values give up.
};

struct NullOperation {
  enum class Kind : std::uint8_t { copy, fill, record, wait_event, write_value, wait_value };
  Kind kind;
  std::uint32_t value{0};        ///< Byte of a fill, or the word of write_value and wait_value.
  std::uint64_t destination{0};  ///< Also the address of the word.
  std::uint64_t source{0};
  std::uint64_t nbytes{0};
  NullEvent* event{nullptr};
  std::uint64_t generation{0};
};

class NullStream {
 public:
  explicit NullStream(NullClock const& clock);
  NullStream(NullStream const&)            = delete;
  NullStream& operator=(NullStream const&) = delete;
  /// Joins the thread: everything enqueued has run, but for what lies behind a wait that gave up.
  ~NullStream();

  /// Enqueues; while the stream captures, the operation goes into a graph that nobody launches.
  void submit(NullOperation const& operation);
  void record(NullEvent& event);
  void wait_event(NullEvent& event);
  void synchronize();

  void begin_capture();
  void end_capture();
  [[nodiscard]] bool is_capturing() const;

  /// Takes no more; the thread ends after what is queued. Does not wait for it.
  void close();
  /// The thread has ended, so that destruction does not block.
  [[nodiscard]] bool finished() const;

 private:
  void run();
  void execute(NullOperation const& operation);
  void copy(NullOperation const& operation) const;
  [[nodiscard]] bool wait_value_reached(NullOperation const& operation) const;
  void enqueue_locked(NullOperation const& operation);
  [[nodiscard]] bool capturing_locked() const;

  NullClock const& clock_;
  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  std::deque<NullOperation> queue_;
  std::uint64_t submitted_{0};
  std::uint64_t completed_{0};
  bool closed_{false};
  bool finished_{false};
  bool aborted_{false};  ///< The thread's own: an order was broken, so nothing behind it may run.
  std::shared_ptr<NullCapture> capture_;
  bool capture_origin_{false};
  std::thread thread_;
};

}  // namespace datapath
