// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which work of a lane goes first.
#pragma once

#include <cstdint>
#include <limits>

namespace datapath {

/// Higher priority, then earlier deadline, then first come, then lower piece.
struct Order {
  static constexpr std::uint64_t no_deadline = std::numeric_limits<std::uint64_t>::max();

  std::int32_t priority{0};
  std::uint64_t deadline{no_deadline};
  std::uint64_t sequence{0};
  std::uint64_t offset{0};

  [[nodiscard]] bool before(Order const& other) const noexcept
  {
    if (priority != other.priority) { return priority > other.priority; }
    if (deadline != other.deadline) { return deadline < other.deadline; }
    if (sequence != other.sequence) { return sequence < other.sequence; }
    return offset < other.offset;
  }
};

}  // namespace datapath
