// SPDX-License-Identifier: Apache-2.0
/// @file
/// Rows of host memory changed by id on the CPU: the twin of `update_cuda.hpp`.
#pragma once

#include "update_arguments.hpp"

namespace pytorch_direct {

/// Change the rows on at most `threads` threads.
void update_cpu(UpdateArguments const& arguments, Number number, Rule rule, int threads);

/// Run the GPU's kernel thread by thread on the host, `threads` of them.
void update_emulated(UpdateArguments const& arguments,
                     Number number,
                     Rule rule,
                     std::int64_t threads);

}  // namespace pytorch_direct
