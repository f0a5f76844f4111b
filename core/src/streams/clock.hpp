// SPDX-License-Identifier: Apache-2.0
/// @file
/// The one clock of deadlines, traces and busy times.
#pragma once

#include <cstdint>
#include <ctime>

namespace datapath {

/// Nanoseconds of CLOCK_MONOTONIC.
[[nodiscard]] inline std::uint64_t monotonic_now() noexcept
{
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace datapath
