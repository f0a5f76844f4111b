// SPDX-License-Identifier: Apache-2.0
#include "sampling_cpu.hpp"

#include "sampling_choice.hpp"
#include "thread_pool.hpp"

#include <algorithm>
#include <cstddef>

namespace pytorch_direct {
namespace {

constexpr std::int64_t kChunk = 256;  ///< Entries of the frontier that one thread takes at once.
constexpr std::int64_t kAhead = 16;
/// Entries whose edges are chosen before the sources of the first are read.
constexpr std::int64_t kBlock = 16;
/// Edges that are given numbers together, so that the map grows by what they may add.
constexpr std::int64_t kNamed = 4096;

void choose(Relation const& relation,
            SamplingRule const& rule,
            Neighbourhood const& near,
            std::int64_t entry,
            std::int64_t* chosen)
{
  if (near.count == 0) { return; }
  if (takes_all(relation, rule, near)) {
    for (std::int64_t i = 0; i < near.count; ++i) { chosen[i] = near.begin + i; }
  } else if (rule.replace && relation.weights == nullptr) {
    Draws draws{rule.key, entry};
    for (std::int64_t i = 0; i < near.count; ++i) {
      chosen[i] = near.begin + draws.at(i, near.population);
    }
  } else if (rule.replace) {
    for (std::int64_t i = 0; i < near.count; ++i) {
      chosen[i] = single_choice(relation, rule, near, entry, i);
    }
  } else if (relation.weights == nullptr && near.count > kManyChoices) {
    std::vector<std::int64_t> slots(static_cast<std::size_t>(ChosenSet::kSlots * near.count), -1);
    joint_choice(relation, rule, near, entry, chosen, slots.data());
  } else {
    joint_choice(relation, rule, near, entry, chosen, nullptr);
  }
}

void prefetch_edge(Relation const& relation, bool names, std::int64_t edge)
{
  auto const bytes = relation.indices_are_64_bit ? 8 : 4;
  __builtin_prefetch(static_cast<std::byte const*>(relation.indices) + edge * bytes);
  if (names && relation.edge_ids != nullptr) { __builtin_prefetch(relation.edge_ids + edge); }
}

}  // namespace

CpuBatch::CpuBatch(std::size_t node_types, std::size_t relations, bool disjoint, int threads)
  : nodes_(node_types), edges_(relations), disjoint_{disjoint}, threads_{threads}
{}

std::int64_t CpuBatch::add_seeds(std::size_t type,
                                 std::int64_t const* seeds,
                                 std::int64_t count,
                                 std::int64_t first_batch,
                                 std::int64_t nodes)
{
  auto& here = nodes_[type];
  here.numbers.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    auto const node = seeds[i];
    if (node < 0 || node >= nodes) { return i; }
    auto const batch = first_batch + i;
    auto const key   = disjoint_ ? batch * nodes + node : node;
    here.numbers.number_of(static_cast<std::uint64_t>(key), here.nodes.size());
    here.nodes.push(node);
    if (disjoint_) { here.batch.push(batch); }
  }
  here.frontier_end = here.nodes.size();
  return -1;
}

void CpuBatch::take(std::size_t index,
                    Relation const& relation,
                    std::size_t source_type,
                    std::size_t destination_type,
                    SamplingRule const& rule,
                    std::int64_t const* times,
                    bool names)
{
  auto& from       = nodes_[destination_type];
  auto& to         = nodes_[source_type];
  auto& edges      = edges_[index];
  auto const first = from.frontier_begin;
  auto const size  = from.frontier_end - first;
  auto const base  = edges.row.size();

  std::vector<Neighbourhood> near(static_cast<std::size_t>(size));
  auto const chunks = (size + kChunk - 1) / kChunk;
  std::vector<std::int64_t> offset(static_cast<std::size_t>(chunks) + 1, 0);
  parallel_chunks(chunks, threads_, [&](std::int64_t chunk) {
    auto const end   = std::min(size, (chunk + 1) * kChunk);
    std::int64_t sum = 0;
    for (auto i = chunk * kChunk; i < end; ++i) {
      if (i + kAhead < end) {
        __builtin_prefetch(relation.indptr + from.nodes[first + i + kAhead]);
      }
      auto const time = times == nullptr ? 0 : times[from.batch[first + i]];
      auto& here      = near[static_cast<std::size_t>(i)];
      here            = neighbourhood_of(relation, rule, from.nodes[first + i], time);
      sum += here.count;
    }
    offset[static_cast<std::size_t>(chunk) + 1] = sum;
  });
  for (std::size_t i = 1; i < offset.size(); ++i) { offset[i] += offset[i - 1]; }
  auto const total = offset.back();
  edges.row.resize(base + total);
  edges.col.resize(base + total);
  edges.id.resize(base + total);

  // `row` holds the sources' ids until they have numbers.
  parallel_chunks(chunks, threads_, [&](std::int64_t chunk) {
    auto const end = std::min(size, (chunk + 1) * kChunk);
    auto at        = base + offset[static_cast<std::size_t>(chunk)];
    for (auto block = chunk * kChunk; block < end; block += kBlock) {
      auto const begin = at;
      for (auto i = block; i < std::min(end, block + kBlock); ++i) {
        auto const& here   = near[static_cast<std::size_t>(i)];
        auto* const chosen = edges.id.data() + at;
        choose(relation, rule, here, first + i, chosen);
        for (std::int64_t j = 0; j < here.count; ++j) {
          prefetch_edge(relation, names, chosen[j]);
          edges.col[at + j] = first + i;
        }
        at += here.count;
      }
      for (auto edge = begin; edge < at; ++edge) {
        auto const position = edges.id[edge];
        edges.row[edge]     = source_of(relation, position);
        if (relation.edge_ids != nullptr && names) { edges.id[edge] = relation.edge_ids[position]; }
      }
    }
  });

  auto const key_of = [&](std::int64_t edge) {
    auto const node = edges.row[edge];
    if (!disjoint_) { return static_cast<std::uint64_t>(node); }
    return static_cast<std::uint64_t>(from.batch[edges.col[edge]] * relation.sources + node);
  };
  auto const end = base + total;
  for (auto block = base; block < end; block += kNamed) {
    auto const stop = std::min(end, block + kNamed);
    to.numbers.reserve(to.numbers.used() + static_cast<std::size_t>(stop - block));
    for (auto edge = block; edge < stop; ++edge) {
      if (edge + kAhead < stop) { to.numbers.prefetch(key_of(edge + kAhead)); }
      auto const next   = to.nodes.size();
      auto const number = to.numbers.number_of(key_of(edge), next);
      if (number == next) {
        to.nodes.push(edges.row[edge]);
        if (disjoint_) { to.batch.push(from.batch[edges.col[edge]]); }
      }
      edges.row[edge] = number;
    }
  }
}

void CpuBatch::end_hop()
{
  for (auto& here : nodes_) {
    here.frontier_begin = here.frontier_end;
    here.frontier_end   = here.nodes.size();
  }
}

}  // namespace pytorch_direct
