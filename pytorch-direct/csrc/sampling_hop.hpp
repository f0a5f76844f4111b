// SPDX-License-Identifier: Apache-2.0
/// @file
/// The order of the sampling kernels, the same for the GPU and for the host that plays one.
#pragma once

#include "sampling_body.hpp"

#include <algorithm>

namespace pytorch_direct {

/// A `Runner` has `run<body>(arguments, items)`, which calls the body for all threads of a grid that
/// suits that many items, and `sum(list, count)`, which turns a list into its exclusive sums.
template <class Runner>
void insert_seeds(Runner& runner, SeedArguments const& arguments)
{ runner.template run<insert_numbered>(arguments, arguments.count); }

/// Leaves the number of edges in `scratch.offsets[frontier.capacity]`.
template <class Runner>
void count_hop(Runner& runner, HopArguments const& arguments)
{
  runner.template run<count_neighbours>(arguments, arguments.frontier.capacity + 1);
  runner.sum(arguments.scratch.offsets, arguments.frontier.capacity + 1);
}

template <class Runner>
void take_hop(Runner& runner, HopArguments const& arguments)
{
  auto const edges = arguments.edges.capacity;
  if (!arguments.rule.replace && arguments.rule.fanout > 0) {
    runner.template run<choose_jointly>(arguments, arguments.frontier.capacity);
  }
  runner.template run<visit_edges>(arguments, edges);
  runner.template run<mark_first>(arguments, edges + 1);
  runner.sum(arguments.scratch.rank, edges + 1);
  runner.template run<name_nodes>(arguments, edges);
  runner.template run<resolve_edges>(arguments, std::max<std::int64_t>(edges, 1));
}

}  // namespace pytorch_direct
