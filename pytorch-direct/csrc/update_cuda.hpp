// SPDX-License-Identifier: Apache-2.0
/// @file
/// Rows changed by id on the GPU, in its own memory or over the link in the host's.
#pragma once

#include "gather_cuda.hpp"
#include "update_arguments.hpp"

namespace pytorch_direct {

/// Enqueue the change on the stream of `launch`. `as_given` has the ids as the caller gave them,
/// their number and where word of bad ones goes; null ids: they were checked before.
void update_cuda(UpdateArguments const& arguments,
                 GatherArguments const& as_given,
                 Number number,
                 Rule rule,
                 Launch const& launch);

}  // namespace pytorch_direct
