// SPDX-License-Identifier: Apache-2.0
/// @file
/// Adds rows into a table by id; the order of additions is that of the ids, on any number of
/// threads.
#pragma once

#include "update_arguments.hpp"

#include <cstdint>

namespace pytorch_direct {

struct ScatterArguments {
  void* table;  ///< Packed rows.
  std::int64_t rows;
  std::int64_t row_numbers;  ///< Numbers in a row.
  void const* ids;
  bool ids_are_64_bit;
  std::int64_t count;
  void const* added;  ///< `count` packed rows.
};

/// For tables of float32, float64, int32 and int64; the sums of others need an order by id
/// (`update_cpu.hpp`). Returns the first position whose id is out of range, in which case nothing was added, or -1.
[[nodiscard]] std::int64_t scatter_add_cpu(ScatterArguments const& arguments,
                                           Number number,
                                           int threads);

}  // namespace pytorch_direct
