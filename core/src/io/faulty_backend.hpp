// SPDX-License-Identifier: Apache-2.0
/// @file
/// A backend around another one that makes requests fail, shrink, wait, overtake each other or
/// vanish.
#pragma once

#include "io/backend.hpp"
#include "io/fault_plan.hpp"

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace datapath {

class FaultyBackend final : public Backend {
 public:
  FaultyBackend(std::unique_ptr<Backend> inner, std::shared_ptr<FaultPlan> plan);
  ~FaultyBackend() override;

  [[nodiscard]] std::string_view name() const noexcept override { return inner_->name(); }
  void submit(IoList pieces) override;
  [[nodiscard]] bool stop() override;
  [[nodiscard]] bool on_own_thread() const noexcept override;
  [[nodiscard]] std::uint64_t attempts_ended() const noexcept override;
  [[nodiscard]] std::uint64_t load() const noexcept override { return inner_->load(); }
  [[nodiscard]] bool takes_device_pointers() const noexcept override
  { return inner_->takes_device_pointers(); }
  void forget(Descriptors const& file) noexcept override { inner_->forget(file); }
  void describe(JsonWriter& json) const override;

 private:
  /// A piece that waits for its time, and what comes then: an error, or the true backend (0).
  struct Held {
    IoPiece* piece;
    int os_errno;
  };

  void work() noexcept;
  void hold(IoPiece& piece, int os_errno, std::uint64_t delay_ns);
  void reorder(IoPiece& piece, std::uint64_t window);
  void flush_window(IoList& out);

  std::unique_ptr<Backend> inner_;
  std::shared_ptr<FaultPlan> plan_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<std::uint64_t, Held> held_;  ///< By due time, CLOCK_MONOTONIC nanoseconds.
  std::vector<IoPiece*> window_;
  std::uint64_t window_due_{0};
  std::uint64_t random_{0};
  bool stopping_{false};
  std::atomic<std::uint64_t> lost_{0};
  std::atomic<std::uint64_t> attempts_ended_{0};
  std::thread thread_;
};

}  // namespace datapath
