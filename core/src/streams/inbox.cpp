// SPDX-License-Identifier: Apache-2.0
#include "streams/inbox.hpp"

#include <chrono>
#include <limits>

namespace datapath {

void Inbox::push(Notice& notice) noexcept
{
  auto* head = head_.load(std::memory_order_relaxed);
  do {
    notice.next = head;
  } while (!head_.compare_exchange_weak(head, &notice, std::memory_order_seq_cst));
  // After this push the reader either sees the message before it sleeps, or is seen sleeping here.
  if (sleeping_.load(std::memory_order_seq_cst) && sleeping_.exchange(false)) { wake(); }
}

void Inbox::wake() noexcept
{
  {
    std::lock_guard const lock{mutex_};
    woken_ = true;
  }
  changed_.notify_one();
}

Notice* Inbox::take() noexcept
{
  auto* newest   = head_.exchange(nullptr, std::memory_order_acquire);
  Notice* oldest = nullptr;
  while (newest != nullptr) {
    auto* const next = newest->next;
    newest->next     = oldest;
    oldest           = newest;
    newest           = next;
  }
  return oldest;
}

void Inbox::sleep(std::uint64_t nanoseconds)
{
  sleeping_.store(true, std::memory_order_seq_cst);
  if (head_.load(std::memory_order_seq_cst) == nullptr) {
    std::unique_lock lock{mutex_};
    auto const awake = [this] { return woken_; };
    if (nanoseconds == std::numeric_limits<std::uint64_t>::max()) {
      changed_.wait(lock, awake);
    } else {
      changed_.wait_for(
        lock, std::chrono::nanoseconds{static_cast<std::int64_t>(nanoseconds)}, awake);
    }
    woken_ = false;
  }
  sleeping_.store(false, std::memory_order_relaxed);
}

}  // namespace datapath
