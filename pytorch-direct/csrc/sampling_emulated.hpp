// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs the threads of the sampling kernels one after another on the host, in any order, for the
/// tests.
#pragma once

#include "sampling_body.hpp"

#include <cstdint>

namespace pytorch_direct {

struct EmulatedGrid {
  std::int64_t threads;
  std::uint64_t order;  ///< Seed of the order in which the threads run.
};

void insert_seeds_emulated(SeedArguments const& arguments, EmulatedGrid const& grid);
void count_hop_emulated(HopArguments const& arguments, EmulatedGrid const& grid);
void take_hop_emulated(HopArguments const& arguments, EmulatedGrid const& grid);

}  // namespace pytorch_direct
