// SPDX-License-Identifier: Apache-2.0
/// @file
/// Compresses a list of edges by destination: a stable counting sort.
#pragma once

#include <cstdint>

namespace pytorch_direct {

struct EdgeList {
  void const* sources;
  void const* destinations;
  bool is_64_bit;
  std::int64_t count;
};

struct CompressedOut {
  std::int64_t* indptr;  ///< `nodes + 1`.
  void* indices;         ///< int64 or int32.
  bool indices_are_64_bit;
  std::int64_t* edge_ids;  ///< Position of each edge in the list.
};

/// Ids are known to be in range: sources fit `indices`, destinations are below `nodes`.
void csc_build(EdgeList const& edges, std::int64_t nodes, CompressedOut const& out, int threads);

/// The first offset that is below the one before it (or not 0 at the start, or not `edges` at the
/// end) as a place in `indptr`, else -1.
[[nodiscard]] std::int64_t first_bad_offset(std::int64_t const* indptr,
                                            std::int64_t nodes,
                                            std::int64_t edges);

/// Turn the weights of edges into running sums of integers within each neighbourhood. Weights are
/// finite and not negative.
void weight_sums(std::int64_t const* indptr,
                 std::int64_t nodes,
                 double const* weights,
                 std::uint64_t* sums,
                 std::int64_t* drawable,
                 int threads);

}  // namespace pytorch_direct
