// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs the threads of the gather kernels one after another on the host, for the tests.
#pragma once

#include "gather_arguments.hpp"

namespace pytorch_direct {

/// Every thread of a grid of `threads` (a multiple of 32), over host addresses.
void gather_emulated(GatherArguments const& arguments,
                     GatherPath const& path,
                     RowLayout const& row,
                     std::int64_t element_bytes,
                     std::int64_t threads);

}  // namespace pytorch_direct
