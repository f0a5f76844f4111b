// SPDX-License-Identifier: Apache-2.0
/// @file
/// One io_uring and the thread that submits to it and reaps from it.
#pragma once

#include "io/backend.hpp"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

struct io_uring;

namespace datapath {

/// Others hand pieces over in batches under one lock; they wake the thread by an event only if it
/// sleeps and has room. The thread fills the ring from its queue, and enters the kernel once a
/// round for submitting and for waiting.
class UringRing {
 public:
  /// Throws DP_ERR_UNSUPPORTED with the reason.
  UringRing(std::uint32_t number, std::uint32_t depth, std::uint64_t max_inflight_bytes);
  ~UringRing();
  UringRing(UringRing const&)            = delete;
  UringRing& operator=(UringRing const&) = delete;

  void submit(IoList& pieces);
  /// False: the thread is stuck, or the kernel holds pieces that are lost; this must be leaked.
  [[nodiscard]] bool stop();
  [[nodiscard]] bool on_own_thread() const noexcept;
  /// Pieces that were handed over and have not ended.
  [[nodiscard]] std::uint64_t load() const noexcept
  { return load_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t attempts_ended() const noexcept
  { return attempts_ended_.load(std::memory_order_relaxed); }
  /// Pieces that the kernel took and whose ends cannot be fetched any more: they never end, and
  /// their tickets stay pending.
  [[nodiscard]] std::uint64_t lost() const noexcept
  { return lost_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t flags() const noexcept { return flags_; }

 private:
  struct Setup;

  void run(Setup& setup) noexcept;
  void serve() noexcept;
  void take_incoming();
  void fill();
  void arm_wake();
  /// Submits what was filled in and waits for completions, unless something came in meanwhile.
  void enter() noexcept;
  void reap() noexcept;
  void break_down(int os_errno) noexcept;
  void fetch_completions() noexcept;
  void fail_unsubmitted() noexcept;
  void wake() noexcept;

  std::uint32_t const depth_;
  std::uint64_t const max_inflight_bytes_;
  std::unique_ptr<io_uring> ring_;
  std::uint32_t flags_{0};
  int event_{-1};

  // The thread's own.
  IoList queue_;
  std::uint32_t inflight_{0};
  std::uint64_t inflight_bytes_{0};
  std::uint64_t wake_value_{0};
  bool wake_armed_{false};
  int broken_{0};  ///< The errno with which entering the kernel failed for good.

  std::mutex mutex_;
  IoList incoming_;
  bool sleeping_{false};
  bool stopping_{false};
  bool ended_{false};
  std::condition_variable ended_changed_;

  std::atomic<std::uint64_t> load_{0};
  std::atomic<std::uint64_t> attempts_ended_{0};
  std::atomic<std::uint64_t> lost_{0};
  std::thread thread_;
};

}  // namespace datapath
