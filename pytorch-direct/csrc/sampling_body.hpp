// SPDX-License-Identifier: Apache-2.0
/// @file
/// What one thread of each sampling kernel does. Threads meet only in the hash table, by atomic
/// operations whose outcome does not depend on their order, so that the host can run them in any.
///
/// A hop along one edge type is: count, (scan), choose, visit, mark, (scan), name, resolve.
#pragma once

#include "host_device.hpp"
#include "sampling_arguments.hpp"
#include "sampling_choice.hpp"

#include <cstdint>

namespace pytorch_direct {

using Word = unsigned long long;

inline constexpr Word kNoKey = ~Word{0};
/// Added to the position of the edge that asks for a node which has no number yet.
inline constexpr Word kUnnamed = Word{1} << 62;

/// The nodes of one type in a batch, and the table that finds their numbers.
///
/// A slot's value is the node's number, or `kUnnamed` and the least position that asked for it, or
/// all ones.
struct NodeTable {
  std::int64_t* nodes;
  std::int64_t* batch;  ///< The seed that each node was reached from; null: subgraphs are shared.
  Word* keys;
  Word* values;
  std::int64_t slots;   ///< A power of two.
  std::int64_t stride;  ///< Nodes of the type: what a key counts seeds by.
  std::int64_t* total;  ///< Nodes so far.
};

/// The nodes whose neighbours a hop takes: [bounds[0], bounds[1]) of the destinations' type.
struct FrontierView {
  std::int64_t const* nodes;
  std::int64_t const* batch;
  std::int64_t const* times;  ///< Of each seed; null where nothing is temporal.
  std::int64_t const* bounds;
  std::int64_t capacity;  ///< At least the number of nodes.
};

struct EdgeLists {
  std::int64_t* row;      ///< Number of the source.
  std::int64_t* col;      ///< Number of the destination.
  std::int64_t* id;       ///< Position, at the end the edge's name.
  std::int64_t* ends;     ///< ends[0]: edges before this hop; ends[1] is written.
  std::int64_t capacity;  ///< At least the edges of this hop.
};

/// Memory for one hop along one edge type.
struct HopScratch {
  std::int64_t* begin;       ///< Of each neighbourhood, frontier.capacity long.
  std::int64_t* population;  ///< The same.
  std::int64_t* offsets;     ///< Counts, then their sums; frontier.capacity + 1.
  std::int64_t* slot;        ///< Of each edge's source in the table; edges.capacity.
  std::int64_t* rank;        ///< Marks, then their sums; edges.capacity + 1.
  std::int64_t* slots;       ///< All -1, `ChosenSet::kSlots` an edge; needed for large fan-outs.
};

struct HopArguments {
  Relation relation;
  SamplingRule rule;
  FrontierView frontier;
  NodeTable sources;
  EdgeLists edges;
  HopScratch scratch;
};

struct SeedArguments {
  NodeTable table;
  std::int64_t count;
  std::int64_t first;        ///< Number of the first in `table.nodes`.
  std::int64_t first_batch;  ///< What `table.batch` gives it.
  std::int64_t nodes;        ///< Ids from here on are bad.
  Word* first_bad;           ///< The complement of the first bad seed's number; 0 for none.
};

PD_HOST_DEVICE Word atomic_swap_if(Word* at, Word expected, Word desired)
{
#if defined(__CUDA_ARCH__)
  return atomicCAS(at, expected, desired);
#else
  auto const before = *at;
  if (before == expected) { *at = desired; }
  return before;
#endif
}

PD_HOST_DEVICE void atomic_min(Word* at, Word value)
{
#if defined(__CUDA_ARCH__)
  atomicMin(at, value);
#else
  if (value < *at) { *at = value; }
#endif
}

PD_HOST_DEVICE void atomic_max(Word* at, Word value)
{
#if defined(__CUDA_ARCH__)
  atomicMax(at, value);
#else
  if (value > *at) { *at = value; }
#endif
}

/// Spreads keys over slots: the finaliser of MurmurHash3 (A. Appleby, public domain).
PD_HOST_DEVICE Word scrambled(Word key)
{
  key ^= key >> 33;
  key *= 0xFF51AFD7ED558CCDULL;
  key ^= key >> 33;
  key *= 0xC4CEB9FE1A85EC53ULL;
  return key ^ (key >> 33);
}

/// The slot of a node, taken if it has none yet. The table always has room.
PD_HOST_DEVICE std::int64_t slot_of(NodeTable const& table, std::int64_t node, std::int64_t batch)
{
  auto const key  = static_cast<Word>(table.batch == nullptr ? node : batch * table.stride + node);
  auto const mask = static_cast<Word>(table.slots - 1);
  for (auto slot = scrambled(key) & mask;; slot = (slot + 1) & mask) {
    auto const found = atomic_swap_if(table.keys + slot, kNoKey, key);
    if (found == kNoKey || found == key) { return static_cast<std::int64_t>(slot); }
  }
}

/// Seeds, or nodes of an earlier table: their numbers are their places in the list.
PD_HOST_DEVICE void insert_numbered(SeedArguments const& a,
                                    std::int64_t thread,
                                    std::int64_t threads)
{
  for (auto i = thread; i < a.count; i += threads) {
    auto const number = a.first + i;
    if (number >= *a.table.total) { return; }
    auto const node = a.table.nodes[number];
    if (a.first_batch >= 0 && a.table.batch != nullptr) {
      a.table.batch[number] = a.first_batch + i;
    }
    if (node < 0 || node >= a.nodes) {
      if (a.first_bad != nullptr) { atomic_max(a.first_bad, ~static_cast<Word>(i)); }
      continue;
    }
    auto const batch = a.table.batch == nullptr ? 0 : a.table.batch[number];
    atomic_min(a.table.values + slot_of(a.table, node, batch), static_cast<Word>(number));
  }
}

PD_HOST_DEVICE void count_neighbours(HopArguments const& a,
                                     std::int64_t thread,
                                     std::int64_t threads)
{
  auto const first = a.frontier.bounds[0];
  auto const size  = a.frontier.bounds[1] - first;
  for (auto i = thread; i <= a.frontier.capacity; i += threads) {
    if (i >= size) {
      a.scratch.offsets[i] = 0;
      continue;
    }
    auto const time =
      a.frontier.times == nullptr ? 0 : a.frontier.times[a.frontier.batch[first + i]];
    auto const near    = neighbourhood_of(a.relation, a.rule, a.frontier.nodes[first + i], time);
    a.scratch.begin[i] = near.begin;
    a.scratch.population[i] = near.population;
    a.scratch.offsets[i]    = near.count;
  }
}

/// Entry `i` of the frontier, once the counts have been summed.
PD_HOST_DEVICE Neighbourhood counted(HopArguments const& a, std::int64_t i)
{
  return {
    a.scratch.begin[i], a.scratch.population[i], a.scratch.offsets[i + 1] - a.scratch.offsets[i]};
}

PD_HOST_DEVICE void choose_jointly(HopArguments const& a, std::int64_t thread, std::int64_t threads)
{
  auto const first = a.frontier.bounds[0];
  auto const size  = a.frontier.bounds[1] - first;
  for (auto i = thread; i < size; i += threads) {
    auto const near = counted(a, i);
    if (near.count == 0 || !is_joint(a.relation, a.rule, near)) { continue; }
    auto const offset = a.scratch.offsets[i];
    joint_choice(
      a.relation,
      a.rule,
      near,
      first + i,
      a.edges.id + a.edges.ends[0] + offset,
      a.scratch.slots == nullptr ? nullptr : a.scratch.slots + ChosenSet::kSlots * offset);
  }
}

/// The entry whose edges include edge `edge` of this hop.
PD_HOST_DEVICE std::int64_t entry_of(HopArguments const& a, std::int64_t edge)
{
  std::int64_t low  = 0;
  std::int64_t high = a.frontier.capacity;
  while (low < high) {
    auto const middle = low + (high - low) / 2;
    if (a.scratch.offsets[middle + 1] <= edge) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

PD_HOST_DEVICE std::int64_t hop_edges(HopArguments const& a)
{ return a.scratch.offsets[a.frontier.capacity]; }

PD_HOST_DEVICE void visit_edges(HopArguments const& a, std::int64_t thread, std::int64_t threads)
{
  auto const first = a.frontier.bounds[0];
  auto const base  = a.edges.ends[0];
  auto const total = hop_edges(a);
  for (auto edge = thread; edge < total; edge += threads) {
    auto const i    = entry_of(a, edge);
    auto const near = counted(a, i);
    auto const position =
      is_joint(a.relation, a.rule, near)
        ? a.edges.id[base + edge]
        : single_choice(a.relation, a.rule, near, first + i, edge - a.scratch.offsets[i]);
    auto const batch = a.sources.batch == nullptr ? 0 : a.frontier.batch[first + i];
    auto const slot  = slot_of(a.sources, source_of(a.relation, position), batch);
    atomic_min(a.sources.values + slot, kUnnamed + static_cast<Word>(edge));
    a.edges.id[base + edge]  = position;
    a.edges.col[base + edge] = first + i;
    a.scratch.slot[edge]     = slot;
  }
}

/// Marks the edges that were the first to ask for a new node.
PD_HOST_DEVICE void mark_first(HopArguments const& a, std::int64_t thread, std::int64_t threads)
{
  auto const total = hop_edges(a);
  for (auto edge = thread; edge <= a.edges.capacity; edge += threads) {
    a.scratch.rank[edge] =
      edge < total && a.sources.values[a.scratch.slot[edge]] == kUnnamed + static_cast<Word>(edge)
        ? 1
        : 0;
  }
}

/// Gives the new nodes their numbers, once the marks have been summed.
PD_HOST_DEVICE void name_nodes(HopArguments const& a, std::int64_t thread, std::int64_t threads)
{
  auto const total  = hop_edges(a);
  auto const before = *a.sources.total;
  for (auto edge = thread; edge < total; edge += threads) {
    if (a.scratch.rank[edge + 1] == a.scratch.rank[edge]) { continue; }
    auto const number = before + a.scratch.rank[edge];
    auto const slot   = a.scratch.slot[edge];
    auto const key    = static_cast<std::int64_t>(a.sources.keys[slot]);
    if (a.sources.batch == nullptr) {
      a.sources.nodes[number] = key;
    } else {
      a.sources.batch[number] = key / a.sources.stride;
      a.sources.nodes[number] = key % a.sources.stride;
    }
    a.sources.values[slot] = static_cast<Word>(number);
  }
}

PD_HOST_DEVICE void resolve_edges(HopArguments const& a, std::int64_t thread, std::int64_t threads)
{
  auto const base  = a.edges.ends[0];
  auto const total = hop_edges(a);
  for (auto edge = thread; edge < total; edge += threads) {
    a.edges.row[base + edge] = static_cast<std::int64_t>(a.sources.values[a.scratch.slot[edge]]);
    if (a.relation.edge_ids != nullptr) {
      a.edges.id[base + edge] = a.relation.edge_ids[a.edges.id[base + edge]];
    }
  }
  if (thread == 0) {
    a.edges.ends[1] = base + total;
    *a.sources.total += a.scratch.rank[a.edges.capacity];
  }
}

}  // namespace pytorch_direct
