// SPDX-License-Identifier: Apache-2.0
/// @file
/// Puts memory behind reserved addresses, near a NUMA node, in huge pages, touched by several
/// threads, and registers it with the device or locks it.
#pragma once

#include "streams/device.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace datapath {

struct BackingOptions {
  Device* device{nullptr};
  bool device_required{false};  ///< A device that refuses is an error; else the memory stays plain.
  bool lock{false};             ///< Without a device: mlock.
  bool huge_pages{true};
  int numa_node{-1};
  bool numa_required{false};  ///< A kernel that cannot place memory is an error.
};

/// Whole pages that are backed, and registered as one range, in one go.
struct Piece {
  std::uint64_t start{0};
  std::uint64_t end{0};
  std::uint64_t device_address{0};
  bool pinned{false};
  std::string reason;  ///< Why it is not pinned.

  [[nodiscard]] std::uint64_t nbytes() const noexcept { return end - start; }
};

/// An address range without memory; nothing is charged for it. Throws DP_ERR_BUDGET.
[[nodiscard]] std::byte* reserve_addresses(std::uint64_t nbytes);
void release_addresses(std::byte* start, std::uint64_t nbytes) noexcept;

/// All of the piece or nothing: throws DP_ERR_BUDGET where memory is out, and the device's errors.
void back(Piece& piece, BackingOptions const& options);

/// Gives memory and registration back; the addresses stay reserved.
void unback(Piece const& piece, Device* device) noexcept;

/// Threads that work on `nbytes` of memory near a node: setting memory.touch_threads, never more
/// than are worth starting.
[[nodiscard]] unsigned memory_threads(std::uint64_t nbytes, int numa_node);

}  // namespace datapath
