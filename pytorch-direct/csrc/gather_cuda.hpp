// SPDX-License-Identifier: Apache-2.0
/// @file
/// The gathers of the GPU. Each enqueues on the caller's stream and returns; none allocates, none
/// waits.
#pragma once

#include "gather_arguments.hpp"
#include "gather_cast.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace pytorch_direct {

/// Where and how wide a launch is.
struct Launch {
  int device;
  std::uintptr_t stream;
  int max_blocks;   ///< Blocks of `kBlockThreads` that keep the link or the memory busy.
  int more_blocks;  ///< The same for kernels with more work between one load and the next.
  int cap;          ///< Blocks that the cap on multiprocessors leaves room for.

  /// Blocks of a kernel of the second kind that could use `wanted`.
  [[nodiscard]] unsigned blocks_of(std::int64_t wanted) const
  {
    return static_cast<unsigned>(
      std::clamp<std::int64_t>(wanted, 1, std::max(1, std::min(more_blocks, cap))));
  }
};

inline constexpr int kBlockThreads = 512;

/// Of a kernel whose blocks may be wide, where there are fewer multiprocessors than blocks.
inline constexpr int kWideBlockThreads = 2 * kBlockThreads;

/// Bytes of workspace that ordering a batch needs.
[[nodiscard]] std::size_t order_workspace_bytes(int device, std::int64_t count);

/// Check the ids of `arguments` and sort them by region of `region_bytes`, or wholly where `merge`
/// is to read equal ids once; `arguments` then reads the sorted keys and writes through the
/// permutation. At most 2^32 - 1 ids and rows.
void order_by_address(GatherArguments& arguments,
                      Launch const& launch,
                      std::int64_t region_bytes,
                      bool merge,
                      std::byte* workspace,
                      std::size_t workspace_bytes);

/// Gather as the bytes are. `arguments.row_bytes` may be 0: then ids are only checked.
void gather_bytes(GatherArguments const& arguments,
                  RowLayout const& row,
                  std::int64_t element_bytes,
                  Launch const& launch);

/// Gather contiguous rows and convert each number; `arguments.row_bytes` is that of `out`.
void gather_cast(GatherArguments const& arguments,
                 Conversion const& conversion,
                 Launch const& launch);

/// Multiprocessors of a device.
[[nodiscard]] int multiprocessors(int device);

}  // namespace pytorch_direct
