// SPDX-License-Identifier: Apache-2.0
#include "gather_arguments.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace pytorch_direct {
namespace {

int log2_ceiling(std::int64_t value)
{ return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(value - 1))); }

/// The greatest power of two, at most `limit`, that divides all the bits that are set.
int common_alignment(std::uint64_t bits, int limit)
{ return 1 << std::countr_zero(bits | static_cast<std::uint64_t>(limit)); }

}  // namespace

GatherPath choose_path(GatherArguments const& arguments,
                       RowLayout const& row,
                       std::int64_t element_bytes)
{
  if (!row.is_contiguous()) { return {GatherForm::strided, static_cast<int>(element_bytes), 0, 0}; }
  auto const bytes     = static_cast<std::uint64_t>(arguments.row_bytes);
  auto const source    = reinterpret_cast<std::uintptr_t>(arguments.table) |
                         static_cast<std::uint64_t>(arguments.stride);
  auto const target    = reinterpret_cast<std::uintptr_t>(arguments.out) | bytes;
  auto const width     = common_alignment(source | target, 16);
  auto const alignment = common_alignment(source, static_cast<int>(kLineBytes));
  auto const units     = arguments.row_bytes / width;
  // One load instruction covers a narrow row; 16-byte loads are served 8 threads at a time, so that
  // a wide row is served line by line if it begins with one.
  bool const narrow = units <= 32 && arguments.row_bytes <= kLineBytes;
  bool const lines  = width == 16 && alignment == kLineBytes;
  if (narrow || lines) { return {GatherForm::direct, width, std::min(5, log2_ceiling(units)), 0}; }
  auto const most = arguments.row_bytes + kLineBytes - alignment;
  return {GatherForm::line, width, 3, (most + kLineBytes - 1) / kLineBytes};
}

StridedRow strided_row(RowLayout const& row, std::int64_t element_bytes)
{
  StridedRow strided{};
  strided.elements = row.row_bytes / element_bytes;
  auto const add   = [&](Dimension dimension) {
    if (strided.dimensions == kMaxDimensions) {
      throw std::invalid_argument("too many dimensions");
    }
    strided.dimension[strided.dimensions++] = dimension;
  };
  for (auto const dimension : row.outer) { add(dimension); }
  if (row.run_bytes > element_bytes) { add({row.run_bytes / element_bytes, element_bytes}); }
  return strided;
}

}  // namespace pytorch_direct
