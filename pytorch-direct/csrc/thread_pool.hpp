// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs the chunks of one loop on several threads; not a scheduler. Works again after a fork.
#pragma once

#include <cstdint>
#include <functional>

namespace pytorch_direct {

/// Call `body(chunk)` once for each chunk in [0, chunks), on at most `threads` threads of which the
/// caller is one. Returns when all have ended. `body` must not throw.
void parallel_chunks(std::int64_t chunks,
                     int threads,
                     std::function<void(std::int64_t)> const& body);

}  // namespace pytorch_direct
