// SPDX-License-Identifier: Apache-2.0
/// @file
/// Gathers that convert and scale on the way: narrow numbers cross the link, wide ones are written.
#pragma once

#include "gather_arguments.hpp"

#include <cstdint>

namespace pytorch_direct {

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

/// Each number is converted to float, multiplied where a factor is given, and rounded to `to`.
struct Conversion {
  Cast from               = Cast::none;
  Cast to                 = Cast::none;
  std::int64_t elements   = 0;  ///< Numbers of a row, contiguous in the table and in `out`.
  bool scaled             = false;
  float factor            = 1;
  float const* row_factor = nullptr;  ///< A factor for each row of the table; null: none.
};

/// Bytes of a number of this type.
[[nodiscard]] int cast_bytes(Cast type);

/// Bytes that a thread loads at once: 16 where addresses and sizes allow it, else one number.
[[nodiscard]] int cast_load_bytes(GatherArguments const& arguments, Conversion const& conversion);

/// Threads of a row, as a power of two.
[[nodiscard]] int cast_lane_bits(Conversion const& conversion, int load_bytes);

/// Run the kernel thread by thread on the host.
void gather_cast_emulated(GatherArguments const& arguments,
                          Conversion const& conversion,
                          std::int64_t threads);

}  // namespace pytorch_direct
