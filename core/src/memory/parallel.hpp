// SPDX-License-Identifier: Apache-2.0
/// @file
/// A loop over independent items on a few threads that live no longer than the loop.
#pragma once

#include <cstddef>
#include <functional>

namespace datapath {

/// Calls `body(0)` to `body(count - 1)`, in order of start, on the calling thread and up to
/// `threads - 1` more, which run on the node's processors. The first exception stops the rest from
/// starting and is thrown here once every started call has ended.
void in_parallel(std::size_t count,
                 unsigned threads,
                 int numa_node,
                 std::function<void(std::size_t)> const& body);

}  // namespace datapath
