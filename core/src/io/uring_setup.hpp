// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sets up a ring with the best flags that the kernel knows, and explains why it cannot.
#pragma once

#include <cstdint>
#include <string>

struct io_uring;

namespace datapath {

/// Makes `ring` on the calling thread, which must be the one that submits to it, and reads from it
/// once for a trial. 0, or a negated errno with what was tried in `step`.
[[nodiscard]] int set_up_ring(io_uring& ring, std::uint32_t entries, char const*& step);

/// The counterpart, on the same thread.
void tear_down_ring(io_uring& ring) noexcept;

/// What a failed set-up means on this machine, and the remedy.
[[nodiscard]] std::string explain_ring_error(int os_errno, char const* step);

/// "SINGLE_ISSUER|DEFER_TASKRUN" and so on, of a ring's set-up flags.
[[nodiscard]] std::string ring_flag_names(std::uint32_t flags);

}  // namespace datapath
