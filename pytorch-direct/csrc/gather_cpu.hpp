// SPDX-License-Identifier: Apache-2.0
/// @file
/// The gather of the CPU: rows of host memory by id, byte for byte.
#pragma once

#include "row_layout.hpp"

#include <cstddef>
#include <cstdint>

namespace pytorch_direct {

struct CpuTable {
  std::byte const* base;
  std::int64_t rows;
  std::int64_t stride;  ///< Bytes from row to row.
  RowLayout row;
};

struct CpuIds {
  void const* data;
  bool is_64_bit;
  std::int64_t count;
  bool wrap;  ///< Negative ids count from the end, as in indexing.
};

/// Copy row ids[i] to out + i * row_bytes. Returns the first position whose id is out of range, or
/// -1. Each id is read once, so that nothing out of range is read even if the ids change meanwhile;
/// after a bad id the contents of `out` are unspecified.
[[nodiscard]] std::int64_t gather_cpu(CpuTable const& table,
                                      CpuIds const& ids,
                                      std::byte* out,
                                      int threads);

}  // namespace pytorch_direct
