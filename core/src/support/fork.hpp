// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tells whether a handle was made before a fork: its threads, rings and device context are not here.
#pragma once

#include <cstdint>

namespace datapath {

/// Counts the forks that led to this process.
[[nodiscard]] std::uint32_t fork_generation() noexcept;

/// A member of everything with threads, rings or a device.
class ForkGuard {
 public:
  ForkGuard() noexcept : generation_{fork_generation()} {}
  [[nodiscard]] bool inherited() const noexcept { return generation_ != fork_generation(); }
  /// Throws DP_ERR_FORKED, naming the kind of object and the remedy.
  void check(char const* what) const;

 private:
  std::uint32_t generation_;
};

}  // namespace datapath
