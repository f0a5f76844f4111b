// SPDX-License-Identifier: Apache-2.0
/// @file
/// How long tests wait for what has to come.
#pragma once

#include <cstdint>

namespace datapath::testing {

/// Longer than anything takes on a loaded machine.
inline constexpr std::uint64_t patience_ns = 120'000'000'000ULL;

}  // namespace datapath::testing
