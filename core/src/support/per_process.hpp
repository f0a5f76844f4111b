// SPDX-License-Identifier: Apache-2.0
/// @file
/// State of a process that a forked child must not share: its mutexes may be held by threads that
/// are not there. The child gets its own at first use; the parent's copy is left alone. Never
/// destroyed, since threads may still look while the process exits.
#pragma once

#include "support/fork.hpp"

#include <atomic>
#include <memory>
#include <type_traits>

namespace datapath {

/// `T` is constructed from `T const*`, the parent's state or nullptr, or by default.
template <class T>
class PerProcess {
 public:
  constexpr PerProcess() noexcept          = default;
  PerProcess(PerProcess const&)            = delete;
  PerProcess& operator=(PerProcess const&) = delete;

  [[nodiscard]] T& get()
  {
    auto* seen = current_.load(std::memory_order_acquire);
    while (seen == nullptr || seen->generation != fork_generation()) {
      auto fresh = make(seen);
      if (current_.compare_exchange_strong(seen, fresh.get(), std::memory_order_acq_rel)) {
        return fresh.release()->value;
      }
    }
    return seen->value;
  }

 private:
  struct Slot {
    std::uint32_t generation{fork_generation()};
    T value;
    Slot() = default;
    explicit Slot(T const* parent)
      requires std::is_constructible_v<T, T const*>
      : value{parent}
    {}
  };

  static std::unique_ptr<Slot> make(Slot const* parent)
  {
    if constexpr (std::is_constructible_v<T, T const*>) {
      return std::make_unique<Slot>(parent == nullptr ? nullptr : &parent->value);
    } else {
      return std::make_unique<Slot>();
    }
  }

  std::atomic<Slot*> current_{nullptr};
};

}  // namespace datapath
