// SPDX-License-Identifier: Apache-2.0
/// @file
/// The CPU's sampler of one batch. Its result does not depend on the number of threads.
#pragma once

#include "node_map.hpp"
#include "number_list.hpp"
#include "sampling_arguments.hpp"

#include <cstdint>
#include <vector>

namespace pytorch_direct {

struct SampledNodes {
  NumberList nodes;
  NumberList batch;  ///< Empty unless subgraphs are disjoint.
  NodeMap numbers;
  std::int64_t frontier_begin = 0;
  std::int64_t frontier_end   = 0;
};

struct SampledEdges {
  NumberList row;
  NumberList col;
  NumberList id;
};

class CpuBatch {
 public:
  CpuBatch(std::size_t node_types, std::size_t relations, bool disjoint, int threads);

  /// Seeds are numbers of nodes below `nodes`; the first that is not is returned, else -1.
  std::int64_t add_seeds(std::size_t type,
                         std::int64_t const* seeds,
                         std::int64_t count,
                         std::int64_t first_batch,
                         std::int64_t nodes);

  /// Take neighbours of the frontier along one edge type. `times` are those of the seeds; null
  /// where the relation is not temporal. Without `names` edges have no ids.
  void take(std::size_t index,
            Relation const& relation,
            std::size_t source_type,
            std::size_t destination_type,
            SamplingRule const& rule,
            std::int64_t const* times,
            bool names);

  /// What was new in this hop is the frontier of the next.
  void end_hop();

  [[nodiscard]] SampledNodes& nodes(std::size_t type) { return nodes_[type]; }
  [[nodiscard]] SampledEdges& edges(std::size_t index) { return edges_[index]; }

 private:
  std::vector<SampledNodes> nodes_;
  std::vector<SampledEdges> edges_;
  bool disjoint_;
  int threads_;
};

}  // namespace pytorch_direct
