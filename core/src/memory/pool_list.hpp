// SPDX-License-Identifier: Apache-2.0
/// @file
/// The pools of this process, for describe.
#pragma once

#include "memory/pool.hpp"

#include <vector>

namespace datapath {

/// Those that somebody holds, oldest first.
[[nodiscard]] std::vector<Ref<Pool>> live_pools();

/// Called by a pool about itself, before it can be found and before it dies.
void list_pool(Pool* pool);
void unlist_pool(Pool const* pool) noexcept;

}  // namespace datapath
