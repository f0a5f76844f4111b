// SPDX-License-Identifier: Apache-2.0
/// @file
/// How the bytes of one row lie in memory: what a gather copies, whatever the tensor's strides are.
#pragma once

#include <cstdint>
#include <vector>

namespace pytorch_direct {

struct Dimension {
  std::int64_t size;
  std::int64_t stride;  ///< Bytes.
};

/// A row is runs of `run_bytes` contiguous bytes, walked over `outer` (empty: one run, the whole
/// row).
struct RowLayout {
  std::vector<Dimension> outer;
  std::int64_t run_bytes = 0;
  std::int64_t row_bytes = 0;  ///< Bytes of the row when packed; 0 for a row without elements.

  [[nodiscard]] bool is_contiguous() const noexcept { return outer.empty(); }
};

/// Merge what can be merged of a row of `sizes` elements with `strides` in bytes.
[[nodiscard]] RowLayout row_layout(std::vector<std::int64_t> const& sizes,
                                   std::vector<std::int64_t> const& strides,
                                   std::int64_t element_bytes);

}  // namespace pytorch_direct
