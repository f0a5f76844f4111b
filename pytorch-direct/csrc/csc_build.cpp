// SPDX-License-Identifier: Apache-2.0
#include "csc_build.hpp"

#include "thread_pool.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

namespace pytorch_direct {
namespace {

std::int64_t id_at(void const* list, bool is_64_bit, std::int64_t i)
{
  return is_64_bit ? static_cast<std::int64_t const*>(list)[i]
                   : static_cast<std::int32_t const*>(list)[i];
}

/// A weight as an integer of `bits` bits at most, where 2^exponent is above the largest.
std::uint64_t scaled(double weight, int exponent, int bits)
{
  if (weight <= 0) { return 0; }
  auto const whole = static_cast<std::uint64_t>(std::ldexp(weight, bits - exponent));
  return std::max<std::uint64_t>(whole, 1);
}

}  // namespace

void csc_build(EdgeList const& edges, std::int64_t nodes, CompressedOut const& out, int threads)
{
  // Each thread owns a range of destinations and walks over all edges, so that none is written by
  // two and each neighbourhood keeps the list's order.
  auto const parts = std::max<std::int64_t>(1, std::min<std::int64_t>(threads, nodes));
  auto const cut   = [&](std::int64_t part) {
    return nodes / parts * part + std::min(part, nodes % parts);
  };
  auto* const indptr = out.indptr;
  std::fill(indptr, indptr + nodes + 1, std::int64_t{0});
  parallel_chunks(parts, threads, [&](std::int64_t part) {
    auto const low  = cut(part);
    auto const high = cut(part + 1);
    for (std::int64_t i = 0; i < edges.count; ++i) {
      auto const to = id_at(edges.destinations, edges.is_64_bit, i);
      if (to >= low && to < high) { ++indptr[to]; }
    }
  });
  // After this, indptr[v] is where v's neighbourhood begins; filling moves it to where it ends.
  std::int64_t sum = 0;
  for (std::int64_t v = 0; v < nodes; ++v) {
    auto const count = indptr[v];
    indptr[v]        = sum;
    sum += count;
  }
  parallel_chunks(parts, threads, [&](std::int64_t part) {
    auto const low  = cut(part);
    auto const high = cut(part + 1);
    for (std::int64_t i = 0; i < edges.count; ++i) {
      auto const to = id_at(edges.destinations, edges.is_64_bit, i);
      if (to < low || to >= high) { continue; }
      auto const place = indptr[to]++;
      auto const from  = id_at(edges.sources, edges.is_64_bit, i);
      if (out.indices_are_64_bit) {
        static_cast<std::int64_t*>(out.indices)[place] = from;
      } else {
        static_cast<std::int32_t*>(out.indices)[place] = static_cast<std::int32_t>(from);
      }
      out.edge_ids[place] = i;
    }
  });
  std::copy_backward(indptr, indptr + nodes, indptr + nodes + 1);
  indptr[0] = 0;
}

std::int64_t first_bad_offset(std::int64_t const* indptr, std::int64_t nodes, std::int64_t edges)
{
  if (indptr[0] != 0) { return 0; }
  for (std::int64_t v = 0; v < nodes; ++v) {
    if (indptr[v + 1] < indptr[v]) { return v + 1; }
  }
  return indptr[nodes] == edges ? -1 : nodes;
}

void weight_sums(std::int64_t const* indptr,
                 std::int64_t nodes,
                 double const* weights,
                 std::uint64_t* sums,
                 std::int64_t* drawable,
                 int threads)
{
  constexpr std::int64_t kChunk = 1 << 12;
  parallel_chunks((nodes + kChunk - 1) / kChunk, threads, [&](std::int64_t chunk) {
    auto const stop = std::min(nodes, (chunk + 1) * kChunk);
    for (auto v = chunk * kChunk; v < stop; ++v) {
      auto const begin = indptr[v];
      auto const end   = indptr[v + 1];
      auto largest     = 0.0;
      for (auto i = begin; i < end; ++i) { largest = std::max(largest, weights[i]); }
      int exponent = 0;
      (void)std::frexp(largest, &exponent);
      // The sum must stay below 2^63.
      auto const degree = static_cast<std::uint64_t>(end - begin);
      auto const bits   = std::min(32, 62 - static_cast<int>(std::bit_width(degree)));
      std::uint64_t sum = 0;
      std::int64_t some = 0;
      for (auto i = begin; i < end; ++i) {
        auto const whole = scaled(weights[i], exponent, bits);
        sum += whole;
        some += whole > 0 ? 1 : 0;
        sums[i] = sum;
      }
      drawable[v] = some;
    }
  });
}

}  // namespace pytorch_direct
