// SPDX-License-Identifier: Apache-2.0
/// @file
/// The backend that works everywhere: a pool of threads that call pread and pwrite.
#pragma once

#include "io/backend.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace datapath {

class ThreadsBackend : public Backend {
 public:
  explicit ThreadsBackend(BackendOptions const& options);
  ~ThreadsBackend() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "threads"; }
  void submit(IoList pieces) override;
  [[nodiscard]] bool stop() override;
  [[nodiscard]] bool on_own_thread() const noexcept override;
  [[nodiscard]] std::uint64_t attempts_ended() const noexcept override;
  [[nodiscard]] std::uint64_t load() const noexcept override
  { return load_.load(std::memory_order_relaxed); }
  void describe(JsonWriter& json) const override;

 protected:
  /// One attempt on the calling thread: bytes, or a negated errno.
  [[nodiscard]] virtual std::int64_t attempt(IoPiece const& piece) noexcept;

  /// For destruction, where nothing is in flight: however late a thread gets to run, it is waited
  /// for.
  void join_idle() noexcept;

 private:
  void work() noexcept;
  /// The next piece if the byte cap allows it.
  [[nodiscard]] IoPiece* take() noexcept;

  std::uint64_t const max_inflight_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  IoList queue_;
  std::uint64_t inflight_bytes_{0};
  std::uint32_t idle_{0};
  std::uint32_t alive_{0};
  bool stopping_{false};
  std::condition_variable ended_;
  std::atomic<std::uint64_t> attempts_ended_{0};
  std::atomic<std::uint64_t> load_{0};
  std::mutex stop_mutex_;
  std::vector<std::thread> threads_;
};

}  // namespace datapath
