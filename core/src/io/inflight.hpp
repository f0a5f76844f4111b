// SPDX-License-Identifier: Apache-2.0
/// @file
/// Counts work inside an object, so that it can be flushed and closed: a door that shuts behind the
/// last one.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

namespace datapath {

class Inflight {
 public:
  /// Asked while waiting: as long as its value changes, a wait goes on past its timeout.
  using Progress = std::function<std::uint64_t()>;
  /// Which of two generations work belongs to.
  using Token = std::uint32_t;

  /// False once shut.
  [[nodiscard]] bool enter(Token& token);
  void leave(Token token);

  /// Waits for all that entered before this call; later work does not prolong it. False: no
  /// progress for `timeout` nanoseconds.
  [[nodiscard]] bool flush(std::uint64_t timeout, Progress const& progress);

  /// Refuses more and waits until all have left. False: no progress for `timeout` nanoseconds.
  [[nodiscard]] bool shut(std::uint64_t timeout, Progress const& progress);

  [[nodiscard]] bool is_shut() const;
  [[nodiscard]] std::uint64_t count() const;

 private:
  bool wait(std::unique_lock<std::mutex>& lock,
            std::uint64_t timeout,
            Progress const& progress,
            std::function<bool()> const& reached);

  std::mutex flushing_;  ///< One flush at a time: there are two generations only.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t counts_[2]{0, 0};
  Token current_{0};
  std::uint32_t waiters_{0};
  bool shut_{false};
};

}  // namespace datapath
