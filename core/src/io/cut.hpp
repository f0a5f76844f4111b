// SPDX-License-Identifier: Apache-2.0
/// @file
/// Cuts requests into pieces: an aligned middle for direct I/O, the rest for the page cache.
#pragma once

#include "io/io_piece.hpp"

#include <datapath/datapath.h>

#include <vector>

namespace datapath {

struct CutRules {
  IoOp op;
  std::uint64_t chunk_bytes;
  /// Reads past this offset go through the page cache: a direct read fills its last block in
  /// memory, past the end of the file.
  std::uint64_t direct_end;
  Backend* backend;
  Descriptors* file;
  bool device_memory{false};
};

/// Throws DP_ERR_INVALID for memory that is NULL and for ranges that pass the largest offset.
void check_request(dp_io_request const& request);

/// Appends the pieces of one valid request.
void cut(std::vector<IoPiece>& pieces, dp_io_request const& request, CutRules const& rules);

/// What offset and length of a direct request are multiples of.
[[nodiscard]] std::uint32_t direct_unit(IoPiece const& piece) noexcept;

/// Offset, length and address suit the direct descriptor.
[[nodiscard]] bool fits_direct(IoPiece const& piece) noexcept;

}  // namespace datapath
