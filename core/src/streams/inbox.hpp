// SPDX-License-Identifier: Apache-2.0
/// @file
/// How other threads tell the progress thread something: one atomic push, and a wake-up only if it sleeps.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace datapath {

enum class NoticeKind : std::uint8_t {
  submitted,      ///< A transfer came in.
  tickets_ended,  ///< All tickets that a transfer waits for have ended.
  io_ended,       ///< The ticket of a piece's I/O has ended.
  io_released,    ///< No request of a piece can touch its memory any more.
  copied,         ///< A worker has finished a piece's host copy.
};

/// Lives inside its subject, so that a message costs no allocation. In one inbox at a time.
struct Notice {
  NoticeKind kind{};
  void* subject{nullptr};
  Notice* next{nullptr};
};

/// Many writers, one reader.
class Inbox {
 public:
  void push(Notice& notice) noexcept;
  /// Ends a sleep, now or the next one, without a message.
  void wake() noexcept;

  /// Everything pushed so far, oldest first; reader only.
  [[nodiscard]] Notice* take() noexcept;
  [[nodiscard]] bool empty() const noexcept
  { return head_.load(std::memory_order_relaxed) == nullptr; }
  /// Sleeps until a push, a wake or `nanoseconds` (UINT64_MAX: no limit); reader only.
  void sleep(std::uint64_t nanoseconds);

 private:
  std::atomic<Notice*> head_{nullptr};
  std::atomic<bool> sleeping_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_{false};
};

}  // namespace datapath
