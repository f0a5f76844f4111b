// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a sampler is told: one edge type of a graph, and how many neighbours to take by which rule.
#pragma once

#include "host_device.hpp"

#include <cstdint>

namespace pytorch_direct {

/// One edge type, compressed by destination. Addresses are those of the processor that reads.
struct Relation {
  std::int64_t const* indptr;  ///< `destinations + 1` offsets into the arrays over edges.
  void const* indices;         ///< Sources: int64 or int32.
  bool indices_are_64_bit;
  std::int64_t destinations;        ///< Nodes of the destinations' type.
  std::int64_t sources;             ///< Nodes of the sources' type.
  std::int64_t const* edge_ids;     ///< Name of each edge; null: its position.
  std::uint64_t const* weights;     ///< Running sums within each neighbourhood; null: uniform.
  std::int64_t const* drawable;     ///< Neighbours of positive weight, for each destination.
  std::int64_t const* edge_time;    ///< Of each edge; at most one of the two times is not null.
  std::int64_t const* source_time;  ///< Of each node of the sources' type.

  [[nodiscard]] PD_HOST_DEVICE bool is_temporal() const
  { return edge_time != nullptr || source_time != nullptr; }
};

/// How one hop takes neighbours along one edge type.
struct SamplingRule {
  std::int64_t fanout;  ///< Below 0: all.
  bool replace;
  bool last;          ///< The latest neighbours that may be seen, not any of them.
  std::uint64_t key;  ///< Of this hop's random numbers; see `hop_key`.
};

}  // namespace pytorch_direct
