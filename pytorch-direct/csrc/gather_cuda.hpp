// SPDX-License-Identifier: Apache-2.0
/// @file
/// The gathers of the GPU. Each enqueues on the caller's stream and returns; none allocates, none
/// waits.
#pragma once

#include "gather_arguments.hpp"

#include <cstddef>
#include <cstdint>

namespace pytorch_direct {

/// Where and how wide a launch is.
struct Launch {
  int device;
  std::uintptr_t stream;
  int max_blocks;  ///< The cap on multiprocessors, as blocks of `kBlockThreads`.
};

inline constexpr int kBlockThreads = 512;

/// Number types of a fused cast; `none` copies bytes.
enum class Cast : std::int32_t {
  none,
  float64,
  float32,
  float16,
  bfloat16,
  float8_e4m3fn,
  float8_e5m2,
  int8,
  uint8
};

struct CastPair {
  Cast from = Cast::none;
  Cast to   = Cast::none;
};

/// Bytes of workspace that ordering a batch needs.
[[nodiscard]] std::size_t order_workspace_bytes(int device, std::int64_t count);

/// Check the ids of `arguments` and sort them by region of `region_bytes`; `arguments` then reads
/// the sorted keys and writes through the permutation. At most 2^32 - 1 ids and rows.
void order_by_address(GatherArguments& arguments,
                      Launch const& launch,
                      std::int64_t region_bytes,
                      std::byte* workspace,
                      std::size_t workspace_bytes);

/// Gather as the bytes are. `arguments.row_bytes` may be 0: then ids are only checked.
void gather_bytes(GatherArguments const& arguments,
                  RowLayout const& row,
                  std::int64_t element_bytes,
                  Launch const& launch);

/// Gather contiguous rows of `elements` numbers and convert each; `arguments.row_bytes` is that of
/// `out`.
void gather_cast(GatherArguments const& arguments,
                 std::int64_t elements,
                 CastPair cast,
                 Launch const& launch);

/// Multiprocessors of a device.
[[nodiscard]] int multiprocessors(int device);

}  // namespace pytorch_direct
