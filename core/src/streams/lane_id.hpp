// SPDX-License-Identifier: Apache-2.0
/// @file
/// The lanes of a scheduler by name.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace datapath {

/// The first five are dp_lane's; `host` copies host memory with worker threads.
enum class LaneId : std::uint8_t { h2d, d2h, read, write, kernel, host };
inline constexpr std::size_t lane_count = 6;

[[nodiscard]] inline std::string_view lane_name(LaneId lane) noexcept
{
  constexpr std::array<std::string_view, lane_count> names{
    "h2d", "d2h", "read", "write", "kernel", "host"};
  return names[static_cast<std::size_t>(lane)];
}

}  // namespace datapath
