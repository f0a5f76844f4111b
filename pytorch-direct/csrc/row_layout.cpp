// SPDX-License-Identifier: Apache-2.0
#include "row_layout.hpp"

#include <algorithm>
#include <cstddef>
#include <stdexcept>

namespace pytorch_direct {

RowLayout row_layout(std::vector<std::int64_t> const& sizes,
                     std::vector<std::int64_t> const& strides,
                     std::int64_t element_bytes)
{
  if (sizes.size() != strides.size()) {
    throw std::invalid_argument("row_layout: sizes and strides differ in length");
  }
  RowLayout layout{{}, element_bytes, element_bytes};
  for (auto const size : sizes) { layout.row_bytes *= size; }
  if (layout.row_bytes == 0) { return {{}, 0, 0}; }
  for (std::size_t i = sizes.size(); i-- > 0;) {
    Dimension const dimension{sizes[i], strides[i]};
    if (dimension.size == 1) { continue; }
    if (layout.outer.empty() && dimension.stride == layout.run_bytes) {
      layout.run_bytes *= dimension.size;
    } else if (!layout.outer.empty() &&
               dimension.stride == layout.outer.back().stride * layout.outer.back().size) {
      layout.outer.back().size *= dimension.size;
    } else {
      layout.outer.push_back(dimension);
    }
  }
  std::reverse(layout.outer.begin(), layout.outer.end());
  return layout;
}

}  // namespace pytorch_direct
