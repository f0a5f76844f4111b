// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a caller lends to work in flight: released once, or leaked on purpose when that would be unsafe.
#pragma once

#include <datapath/datapath.h>

#include <utility>

namespace datapath {

class Owner {
 public:
  Owner() noexcept = default;
  explicit Owner(dp_owner owner) noexcept : owner_{owner} {}
  Owner(Owner const&)            = delete;
  Owner& operator=(Owner const&) = delete;
  Owner(Owner&& other) noexcept : owner_{std::exchange(other.owner_, dp_owner{})} {}
  Owner& operator=(Owner&& other) noexcept
  {
    std::swap(owner_, other.owner_);
    return *this;
  }
  ~Owner() { release(); }

  /// Calls the release function, at most once. Never call it with a lock held.
  void release() noexcept
  {
    auto const owner = std::exchange(owner_, dp_owner{});
    if (owner.release != nullptr) { owner.release(owner.context); }
  }

  /// The hardware may still touch the memory (a lost completion): it is never given back.
  void leak() noexcept { owner_ = dp_owner{}; }

 private:
  dp_owner owner_{};
};

}  // namespace datapath
