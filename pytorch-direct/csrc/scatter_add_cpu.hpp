// SPDX-License-Identifier: Apache-2.0
/// @file
/// Adds rows into a table by id; the order of additions is that of the ids, on any number of
/// threads.
#pragma once

#include <cstdint>

namespace pytorch_direct {

enum class Number { float32, float64, int32, int64 };

struct ScatterArguments {
  void* table;  ///< Packed rows.
  std::int64_t rows;
  std::int64_t row_numbers;  ///< Numbers in a row.
  void const* ids;
  bool ids_are_64_bit;
  std::int64_t count;
  void const* added;  ///< `count` packed rows.
};

/// Returns the first position whose id is out of range, in which case nothing was added, or -1.
[[nodiscard]] std::int64_t scatter_add_cpu(ScatterArguments const& arguments,
                                           Number number,
                                           int threads);

}  // namespace pytorch_direct
