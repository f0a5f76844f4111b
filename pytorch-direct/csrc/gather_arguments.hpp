// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a gather kernel is told, and how its threads share the work of a row.
#pragma once

#include "row_layout.hpp"

#include <cstddef>
#include <cstdint>

namespace pytorch_direct {

/// `key`: 32-bit row numbers that were checked before, all ones where the id was bad.
enum class IdKind : std::int32_t { int32, int64, key };

/// Of one stream: the bad ids that the running kernel has seen. Zero between kernels.
struct BadIdSlot {
  unsigned long long worst;  ///< The complement of the first bad position; 0 for none.
  unsigned int arrived;      ///< Blocks that have ended.
  unsigned int unused;
};

/// What the host reads; in pinned memory. Written by the device while `full` is 0, then by the
/// host.
struct BadIdRecord {
  unsigned long long full;
  unsigned long long sequence;  ///< Of the launch, so that the earliest is reported.
  long long position;
  long long id;
  long long rows;
  long long count;
  long long wrap;
  long long scatter;
};

/// Where a kernel leaves word of bad ids; all null where they were checked before.
struct BadIdSink {
  BadIdSlot* slot;
  BadIdRecord* record;
  unsigned long long* pending;  ///< One word for the device, in pinned memory: some record is full.
  unsigned long long sequence;
};

/// Addresses are the device's.
struct GatherArguments {
  std::byte const* table;
  std::int64_t rows;
  std::int64_t stride;     ///< Bytes from row to row.
  std::int64_t row_bytes;  ///< Bytes of a packed row, above 0.
  void const* ids;
  std::int64_t count;
  std::uint32_t const* positions;  ///< Where row i goes in `out`; null: to i.
  std::byte* out;                  ///< Packed rows.
  IdKind id_kind;
  bool wrap;  ///< Negative ids count from the end.
  BadIdSink bad;
  /// The ids are sorted, and what equal ones name is read once (`id_kind` is `key`).
  bool merge = false;
  /// A bad id is one of a scatter, for the text of its error.
  bool scatter = false;
};

/// Rows that a thread works on at once: a request over the link then waits for no other, so that
/// few multiprocessors keep the link full.
inline constexpr int kRowsAtOnce = 4;

/// Entries that share one read at most, so that a batch of one id is not the work of one warp.
inline constexpr std::int64_t kMergedAtMost = 64;

enum class GatherForm : std::int32_t {
  direct,  ///< `lanes` threads a row, each copying units of `width` bytes.
  line,    ///< 8 threads a 128-byte line of the source, so that no line is asked for twice.
  strided  ///< One thread an element of `width` bytes; for rows that are not contiguous.
};

struct GatherPath {
  GatherForm form;
  int width;  ///< Bytes that divide every address and size involved, at most 16.
  int lane_bits;
  std::int64_t lines;  ///< Lines that a row may touch (form `line`).
};

inline constexpr std::int64_t kLineBytes = 128;

/// The path for rows of this layout: `element_bytes` matters only if it is not contiguous.
[[nodiscard]] GatherPath choose_path(GatherArguments const& arguments,
                                     RowLayout const& row,
                                     std::int64_t element_bytes);

/// Torch's tensors have at most 64 dimensions; a row has one less.
inline constexpr int kMaxDimensions = 63;

struct StridedRow {
  std::int64_t elements;
  int dimensions;
  Dimension dimension[kMaxDimensions];  ///< Outermost first, elements as the unit of the innermost.
};

[[nodiscard]] StridedRow strided_row(RowLayout const& row, std::int64_t element_bytes);

}  // namespace pytorch_direct
