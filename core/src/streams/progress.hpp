// SPDX-License-Identifier: Apache-2.0
/// @file
/// The thread of a scheduler: reads its inbox, looks after events, moves transfers on, sleeps in between.
#pragma once

#include "streams/flags.hpp"
#include "streams/inbox.hpp"
#include "streams/mover.hpp"
#include "streams/transfer.hpp"
#include "support/fork.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

namespace datapath {

/// What a scheduler is made of, with settings and options resolved.
struct ProgressOptions {
  Ref<Pool> pool;
  std::uint64_t chunk_bytes{0};
  std::uint32_t chunks{0};
  std::uint64_t credits{0};
  std::uint32_t copy_threads{0};
};

/// Outlives its scheduler while transfers are in flight; the thread then lets go of everything by itself.
class Progress : public std::enable_shared_from_this<Progress> {
 public:
  Progress(Ref<Device> const& device, ProgressOptions const& options);
  Progress(Progress const&)            = delete;
  Progress& operator=(Progress const&) = delete;
  ~Progress();

  /// Starts the thread; once, after construction.
  void start();

  // ---- from any thread

  /// Throws DP_ERR_CLOSED.
  void submit(Ref<Transfer> const& transfer);
  [[nodiscard]] Inbox& inbox() noexcept { return inbox_; }
  [[nodiscard]] FlagPool& flags() noexcept { return *flags_; }
  [[nodiscard]] Mover const& mover() const noexcept { return *mover_; }
  [[nodiscard]] std::uint64_t next_sequence() noexcept
  { return sequence_.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t live() const noexcept
  { return live_.load(std::memory_order_acquire); }
  /// Fields into an open object.
  void describe(JsonWriter& json) const;
  /// A submitted transfer's ticket has ended.
  void transfer_gone() noexcept;

  /// No more submissions; the thread ends when nothing is left.
  void retire() noexcept;
  [[nodiscard]] bool is_retired() const noexcept { return retired_.load(); }
  /// Waits at most `nanoseconds` until every ticket has ended.
  [[nodiscard]] bool wait_idle(std::uint64_t nanoseconds);
  /// Fails what has not started, with DP_ERR_CLOSED.
  void give_up() noexcept;
  /// Waits at most `nanoseconds` for the thread to let go of its streams and memory.
  bool wait_exited(std::uint64_t nanoseconds);
  /// The process exits: the thread touches no device any more. Waits at most `nanoseconds` for that.
  void abandon(std::uint64_t nanoseconds) noexcept;

 private:
  void run();
  void read_inbox();
  void idle(std::uint64_t now);

  Inbox inbox_;
  std::unique_ptr<FlagPool> flags_;
  std::unique_ptr<Mover> mover_;
  std::atomic<std::uint64_t> sequence_{0};
  std::atomic<std::uint64_t> live_{0};
  std::atomic<bool> retired_{false};
  std::atomic<bool> giving_up_{false};
  std::atomic<bool> abandoned_{false};
  std::uint64_t last_activity_{0};

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool exited_{false};
};

}  // namespace datapath
