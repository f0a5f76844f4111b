// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which neighbours an entry of the frontier gets: integers only, the same on every processor.
///
/// Without replacement: R. Floyd's method, in J. Bentley, "Programming Pearls: a sample of
/// brilliance", CACM 30(9), 1987.
#pragma once

#include "counter_rng.hpp"
#include "host_device.hpp"
#include "sampling_arguments.hpp"

#include <cstdint>

namespace pytorch_direct {

/// In place of a hop's number: random numbers that no hop uses.
inline constexpr std::uint32_t kNotAHop = 0x7FFFFFFF;

/// The key of the random numbers of one hop along one edge type.
PD_HOST_DEVICE constexpr std::uint64_t hop_key(std::uint64_t seed,
                                               std::uint64_t batch,
                                               std::uint32_t hop,
                                               std::uint32_t relation)
{
  // Bit 63 sets these apart from what else is drawn by the same seed (see rmat.cpp).
  auto const which  = (std::uint64_t{1} << 63) | (std::uint64_t{hop} << 32) | relation;
  auto const random = philox(seed, batch, which);
  return (std::uint64_t{random.word[1]} << 32) | random.word[0];
}

/// The high half of a product, a number in [0, bound) for a random `word`.
PD_HOST_DEVICE std::uint64_t below(std::uint64_t word, std::uint64_t bound)
{
#if defined(__CUDA_ARCH__)
  return __umul64hi(word, bound);
#else
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(word) * bound) >> 64);
#endif
}

/// The draws of one entry of the frontier, in any order; two come from one block of the generator.
class Draws {
 public:
  PD_HOST_DEVICE Draws(std::uint64_t key, std::int64_t entry)
    : key_{key}, entry_{static_cast<std::uint64_t>(entry)}
  {}

  /// Draw number `draw`, uniform in [0, bound).
  PD_HOST_DEVICE std::int64_t at(std::int64_t draw, std::int64_t bound)
  {
    auto const number = static_cast<std::uint64_t>(draw);
    if (number / 2 != block_) {
      block_  = number / 2;
      random_ = philox(key_, entry_, block_);
    }
    auto const half = static_cast<int>(number % 2) * 2;
    auto const word = (std::uint64_t{random_.word[half + 1]} << 32) | random_.word[half];
    return static_cast<std::int64_t>(below(word, static_cast<std::uint64_t>(bound)));
  }

 private:
  std::uint64_t key_;
  std::uint64_t entry_;
  std::uint64_t block_ = ~std::uint64_t{0};
  Random128 random_{};
};

/// The neighbours that an entry may get: edges [begin, begin + population), `count` of them.
struct Neighbourhood {
  std::int64_t begin;
  std::int64_t population;
  std::int64_t count;
};

PD_HOST_DEVICE std::int64_t source_of(Relation const& relation, std::int64_t edge)
{
  if (relation.indices_are_64_bit) {
    return static_cast<std::int64_t const*>(relation.indices)[edge];
  }
  return static_cast<std::int32_t const*>(relation.indices)[edge];
}

/// The first edge of [begin, end) that is later than `time`.
PD_HOST_DEVICE std::int64_t end_of_past(Relation const& relation,
                                        std::int64_t begin,
                                        std::int64_t end,
                                        std::int64_t time)
{
  while (begin < end) {
    auto const middle = begin + (end - begin) / 2;
    auto const then   = relation.edge_time != nullptr
                          ? relation.edge_time[middle]
                          : relation.source_time[source_of(relation, middle)];
    if (then <= time) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

/// `time` counts only where the relation is temporal. A node out of range has no neighbours.
PD_HOST_DEVICE Neighbourhood neighbourhood_of(Relation const& relation,
                                              SamplingRule const& rule,
                                              std::int64_t node,
                                              std::int64_t time)
{
  if (rule.fanout == 0 || node < 0 || node >= relation.destinations) { return {0, 0, 0}; }
  auto begin = relation.indptr[node];
  auto end   = relation.indptr[node + 1];
  if (relation.is_temporal()) {
    end = end_of_past(relation, begin, end, time);
    if (rule.last && rule.fanout > 0 && end - begin > rule.fanout) { begin = end - rule.fanout; }
  }
  auto const population = end - begin;
  if (rule.fanout < 0) { return {begin, population, population}; }
  auto const drawable = relation.weights != nullptr ? relation.drawable[node] : population;
  if (rule.replace) { return {begin, population, drawable > 0 ? rule.fanout : 0}; }
  return {begin, population, drawable < rule.fanout ? drawable : rule.fanout};
}

/// Whether the rule takes the whole neighbourhood, in its order.
PD_HOST_DEVICE bool takes_all(Relation const& relation,
                              SamplingRule const& rule,
                              Neighbourhood const& near)
{
  if (rule.fanout < 0) { return true; }
  return relation.weights == nullptr && !rule.replace && near.count == near.population;
}

/// Whether each choice depends on those before it, so that one thread must make them all.
PD_HOST_DEVICE bool is_joint(Relation const& relation,
                             SamplingRule const& rule,
                             Neighbourhood const& near)
{ return !rule.replace && !takes_all(relation, rule, near); }

/// The neighbour (from 0) whose interval of the running sums holds `point`.
PD_HOST_DEVICE std::int64_t weighted_neighbour(std::uint64_t const* sums,
                                               std::int64_t population,
                                               std::uint64_t point)
{
  std::int64_t low  = 0;
  std::int64_t high = population;
  while (low < high) {
    auto const middle = low + (high - low) / 2;
    if (sums[middle] <= point) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/// Choice number `choice` where choices do not depend on each other: the edge's position.
PD_HOST_DEVICE std::int64_t single_choice(Relation const& relation,
                                          SamplingRule const& rule,
                                          Neighbourhood const& near,
                                          std::int64_t entry,
                                          std::int64_t choice)
{
  if (takes_all(relation, rule, near)) { return near.begin + choice; }
  Draws draws{rule.key, entry};
  if (relation.weights == nullptr) { return near.begin + draws.at(choice, near.population); }
  auto const* const sums = relation.weights + near.begin;
  auto const total       = static_cast<std::int64_t>(sums[near.population - 1]);
  auto const point       = static_cast<std::uint64_t>(draws.at(choice, total));
  return near.begin + weighted_neighbour(sums, near.population, point);
}

/// From here on edges that are chosen already are looked up in a set instead of walked over.
inline constexpr std::int64_t kManyChoices = 64;

/// The edges of one entry that are chosen already, over memory that is all -1 at first.
class ChosenSet {
 public:
  /// For `count` edges there is room in `kSlots * count` numbers.
  static constexpr std::int64_t kSlots = 4;

  PD_HOST_DEVICE ChosenSet(std::int64_t* slots, std::int64_t count) : slots_{slots}
  {
    while (mask_ + 1 < static_cast<std::uint64_t>(2 * count)) { mask_ = 2 * mask_ + 1; }
  }

  [[nodiscard]] PD_HOST_DEVICE bool contains(std::int64_t edge) const
  { return slots_[find(edge)] == edge; }
  PD_HOST_DEVICE void add(std::int64_t edge) { slots_[find(edge)] = edge; }

 private:
  [[nodiscard]] PD_HOST_DEVICE std::uint64_t find(std::int64_t edge) const
  {
    auto i = (static_cast<std::uint64_t>(edge) * 0x9E3779B97F4A7C15ULL >> 20) & mask_;
    while (slots_[i] != -1 && slots_[i] != edge) { i = (i + 1) & mask_; }
    return i;
  }

  std::int64_t* slots_;
  std::uint64_t mask_ = 1;
};

/// Floyd's method into `chosen`; the caller's `contains(n, edge)` says whether an edge is among
/// the first n, and `add(n, edge)` is told each.
template <class Contains, class Add>
PD_HOST_DEVICE void choose_distinct(SamplingRule const& rule,
                                    Neighbourhood const& near,
                                    std::int64_t entry,
                                    Contains&& contains,
                                    Add&& add)
{
  Draws draws{rule.key, entry};
  auto const first = near.population - near.count;
  for (std::int64_t i = 0; i < near.count; ++i) {
    auto edge = near.begin + draws.at(i, first + i + 1);
    if (contains(i, edge)) { edge = near.begin + first + i; }
    add(i, edge);
  }
}

/// Successive draws by weight into `chosen`, in order of position.
PD_HOST_DEVICE void choose_by_weight(Relation const& relation,
                                     SamplingRule const& rule,
                                     Neighbourhood const& near,
                                     std::int64_t entry,
                                     std::int64_t* chosen)
{
  Draws draws{rule.key, entry};
  auto const* const sums = relation.weights + near.begin;
  auto rest              = static_cast<std::int64_t>(sums[near.population - 1]);
  for (std::int64_t i = 0; i < near.count; ++i) {
    auto point = static_cast<std::uint64_t>(draws.at(i, rest));
    // What is chosen already takes no room: step over each interval that lies at or before.
    std::int64_t place = 0;
    for (; place < i; ++place) {
      auto const taken = chosen[place] - near.begin;
      auto const start = taken == 0 ? std::uint64_t{0} : sums[taken - 1];
      if (point < start) { break; }
      point += sums[taken] - start;
    }
    auto const neighbour = weighted_neighbour(sums, near.population, point);
    auto const before    = neighbour == 0 ? std::uint64_t{0} : sums[neighbour - 1];
    rest -= static_cast<std::int64_t>(sums[neighbour] - before);
    for (auto j = i; j > place; --j) { chosen[j] = chosen[j - 1]; }
    chosen[place] = near.begin + neighbour;
  }
}

/// All choices of an entry whose choices depend on each other. `slots` are those of a `ChosenSet`,
/// needed for more than `kManyChoices`.
PD_HOST_DEVICE void joint_choice(Relation const& relation,
                                 SamplingRule const& rule,
                                 Neighbourhood const& near,
                                 std::int64_t entry,
                                 std::int64_t* chosen,
                                 std::int64_t* slots)
{
  if (relation.weights != nullptr) {
    choose_by_weight(relation, rule, near, entry, chosen);
    return;
  }
  if (near.count > kManyChoices) {
    ChosenSet set{slots, near.count};
    choose_distinct(
      rule,
      near,
      entry,
      [&set](std::int64_t /*n*/, std::int64_t edge) { return set.contains(edge); },
      [&set, chosen](std::int64_t n, std::int64_t edge) {
        set.add(edge);
        chosen[n] = edge;
      });
    return;
  }
  choose_distinct(
    rule,
    near,
    entry,
    [chosen](std::int64_t n, std::int64_t edge) {
      bool found = false;
      for (std::int64_t i = 0; i < n; ++i) { found |= chosen[i] == edge; }
      return found;
    },
    [chosen](std::int64_t n, std::int64_t edge) { chosen[n] = edge; });
}

}  // namespace pytorch_direct
