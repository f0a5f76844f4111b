// SPDX-License-Identifier: Apache-2.0
/// @file
/// What one thread of a gather kernel does. Threads do not talk to each other, so that the host can
/// run them one after another and prove every index right without a GPU.
#pragma once

#include "gather_arguments.hpp"
#include "host_device.hpp"

#include <cstdint>
#include <cstring>

namespace pytorch_direct {

struct alignas(16) Unit128 {
  std::uint64_t word[2];
};

template <int Bytes>
struct UnitOf;
template <>
struct UnitOf<1> {
  using type = std::uint8_t;
};
template <>
struct UnitOf<2> {
  using type = std::uint16_t;
};
template <>
struct UnitOf<4> {
  using type = std::uint32_t;
};
template <>
struct UnitOf<8> {
  using type = std::uint64_t;
};
template <>
struct UnitOf<16> {
  using type = Unit128;
};
template <int Bytes>
using Unit = typename UnitOf<Bytes>::type;

/// Read memory that no one writes while the kernel runs.
template <class T>
PD_HOST_DEVICE T load(T const* from)
{
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(T) == 16) {
    auto const value = __ldg(reinterpret_cast<ulonglong2 const*>(from));
    return {{value.x, value.y}};
  } else if constexpr (sizeof(T) == 8) {
    return static_cast<T>(__ldg(reinterpret_cast<unsigned long long const*>(from)));
  } else {
    return __ldg(from);
  }
#else
  return *from;
#endif
}

template <class T>
PD_HOST_DEVICE T all_ones()
{
  if constexpr (sizeof(T) == 16) {
    return {{~std::uint64_t{0}, ~std::uint64_t{0}}};
  } else {
    return static_cast<T>(~T{0});
  }
}

/// The row of entry `i`, or -1 where its id is out of range.
PD_HOST_DEVICE std::int64_t row_of(GatherArguments const& a, std::int64_t i)
{
  std::int64_t id;
  switch (a.id_kind) {
    case IdKind::int32:
      id = load(static_cast<std::int32_t const*>(a.ids) + i);
      break;
    case IdKind::int64:
      id = static_cast<std::int64_t>(load(static_cast<std::uint64_t const*>(a.ids) + i));
      break;
    default:
      id = load(static_cast<std::uint32_t const*>(a.ids) + i);
      break;
  }
  if (a.wrap && id < 0) { id += a.rows; }
  return id >= 0 && id < a.rows ? id : -1;
}

PD_HOST_DEVICE std::byte* target_of(GatherArguments const& a, std::int64_t i)
{
  auto const row = a.positions == nullptr ? i : static_cast<std::int64_t>(load(a.positions + i));
  return a.out + row * a.row_bytes;
}

PD_HOST_DEVICE void report_bad(GatherArguments const& a, std::int64_t position)
{
  if (a.bad.slot == nullptr) { return; }
  auto const value = ~static_cast<unsigned long long>(position);
#if defined(__CUDA_ARCH__)
  atomicMax(&a.bad.slot->worst, value);
#else
  if (value > a.bad.slot->worst) { a.bad.slot->worst = value; }
#endif
}

/// How many entries take what entry `i` reads: 1, or more where equal ids are merged; 0 where an
/// entry before it reads for it, or past the end.
PD_HOST_DEVICE int takers_of(GatherArguments const& a, std::int64_t i)
{
  if (i >= a.count) { return 0; }
  if (!a.merge) { return 1; }
  auto const* const keys = static_cast<std::uint32_t const*>(a.ids);
  auto const key         = load(keys + i);
  if (i % kMergedAtMost != 0 && load(keys + i - 1) == key) { return 0; }
  auto end = i + 1;
  while (end < a.count && end % kMergedAtMost != 0 && load(keys + end) == key) { ++end; }
  return static_cast<int>(end - i);
}

/// Form `direct`.
template <int Width>
PD_HOST_DEVICE void gather_direct(GatherArguments const& a,
                                  GatherPath const& path,
                                  std::int64_t thread,
                                  std::int64_t threads)
{
  auto const lane   = thread & ((std::int64_t{1} << path.lane_bits) - 1);
  auto const lanes  = std::int64_t{1} << path.lane_bits;
  auto const groups = threads >> path.lane_bits;
  auto const units  = a.row_bytes / Width;
  for (auto first = (thread >> path.lane_bits) * kRowsAtOnce; first < a.count;
       first += groups * kRowsAtOnce) {
    Unit<Width> const* from[kRowsAtOnce];
    Unit<Width>* to[kRowsAtOnce];
    int takers[kRowsAtOnce];
    PD_UNROLL
    for (int k = 0; k < kRowsAtOnce; ++k) {
      takers[k] = takers_of(a, first + k);
      from[k]   = nullptr;
      to[k]     = nullptr;
      if (takers[k] == 0) { continue; }
      auto const row = row_of(a, first + k);
      if (row < 0) { report_bad(a, first + k); }
      if (row >= 0) { from[k] = reinterpret_cast<Unit<Width> const*>(a.table + row * a.stride); }
      to[k] = reinterpret_cast<Unit<Width>*>(target_of(a, first + k));
    }
    for (auto unit = lane; unit < units; unit += lanes) {
      Unit<Width> value[kRowsAtOnce];
      PD_UNROLL
      for (int k = 0; k < kRowsAtOnce; ++k) {
        value[k] = from[k] == nullptr ? all_ones<Unit<Width>>() : load(from[k] + unit);
      }
      PD_UNROLL
      for (int k = 0; k < kRowsAtOnce; ++k) {
        if (takers[k] == 0) { continue; }
        to[k][unit] = value[k];
        for (int taker = 1; taker < takers[k]; ++taker) {
          reinterpret_cast<Unit<Width>*>(target_of(a, first + k + taker))[unit] = value[k];
        }
      }
    }
  }
}

/// 16 bytes of a line, of which those from `low` up to `high` belong to the row.
struct Chunk {
  Unit128 bytes;
  int low;
  int high;
};

/// The 16 bytes at `offset` in a row that begins at `begin`, both as lines of the source divide it.
template <int Width>
PD_HOST_DEVICE Chunk load_chunk(GatherArguments const& a,
                                std::byte const* begin,
                                std::int64_t offset)
{
  Chunk chunk{all_ones<Unit128>(), 0, 16};
  if (offset < 0) { chunk.low = static_cast<int>(-offset < 16 ? -offset : 16); }
  if (offset + 16 > a.row_bytes) {
    auto const left = a.row_bytes - offset;
    chunk.high      = static_cast<int>(left > 0 ? left : 0);
  }
  if (chunk.low >= chunk.high || begin == nullptr) { return chunk; }
  auto const* const from = begin + offset;
  auto const* const end  = a.table + (a.rows - 1) * a.stride + a.row_bytes;
  // Bytes of neighbouring rows come along and are left out when storing: one request instead of
  // several. Outside of the table nothing is read.
  if (from >= a.table && from + 16 <= end) {
    chunk.bytes = load(reinterpret_cast<Unit128 const*>(from));
    return chunk;
  }
  if constexpr (Width == 16) {
    chunk.bytes = load(reinterpret_cast<Unit128 const*>(from));
  } else {
    PD_UNROLL
    for (int at = 0; at < 16; at += Width) {
      if (at < chunk.low || at >= chunk.high) { continue; }
      auto const unit  = load(reinterpret_cast<Unit<Width> const*>(from + at));
      auto const shift = at % 8 * 8;
      auto const mask  = static_cast<std::uint64_t>(all_ones<Unit<Width>>()) << shift;
      auto& word       = chunk.bytes.word[at / 8];
      word             = (word & ~mask) | (static_cast<std::uint64_t>(unit) << shift);
    }
  }
  return chunk;
}

/// Store what belongs to the row; `to` is where byte 0 of the chunk would go.
template <int Width>
PD_HOST_DEVICE void store_chunk(std::byte* to, Chunk const& chunk)
{
  if constexpr (Width == 16) {
    if (chunk.low < chunk.high) { *reinterpret_cast<Unit128*>(to) = chunk.bytes; }
  } else {
    constexpr int kPerWord = 8 / Width;
    PD_UNROLL
    for (int unit = 0; unit < 16 / Width; ++unit) {
      if (unit * Width < chunk.low || unit * Width >= chunk.high) { continue; }
      auto const word = chunk.bytes.word[unit / kPerWord] >> (unit % kPerWord * Width * 8);
      reinterpret_cast<Unit<Width>*>(to)[unit] = static_cast<Unit<Width>>(word);
    }
  }
}

/// Form `line`: thread 0 of 8 begins at a line boundary at or before the row, and what lies outside
/// of the row is left out.
template <int Width>
PD_HOST_DEVICE void gather_line(GatherArguments const& a,
                                GatherPath const& path,
                                std::int64_t thread,
                                std::int64_t threads)
{
  auto const groups = threads >> 3;
  auto const lane   = thread & 7;
  auto const items  = a.count * path.lines;
  for (auto first = (thread >> 3) * kRowsAtOnce; first < items; first += groups * kRowsAtOnce) {
    auto i    = first / path.lines;
    auto line = first - i * path.lines;
    Chunk chunk[kRowsAtOnce];
    std::byte* to[kRowsAtOnce];
    int takers[kRowsAtOnce];
    PD_UNROLL
    for (int k = 0; k < kRowsAtOnce; ++k) {
      takers[k] = takers_of(a, i);
      chunk[k]  = {};
      to[k]     = nullptr;
      if (takers[k] != 0) {
        auto const row = row_of(a, i);
        if (row < 0) { report_bad(a, i); }
        // Where the row's first byte stands in its line; a bad row is filled as if it began one.
        auto const* const begin = row < 0 ? nullptr : a.table + row * a.stride;
        auto const lead   = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(begin) &
                                                      static_cast<std::uintptr_t>(kLineBytes - 1));
        auto const offset = line * kLineBytes + lane * 16 - lead;
        chunk[k]          = load_chunk<Width>(a, begin, offset);
        to[k]             = target_of(a, i) + offset;
      }
      if (++line == path.lines) {
        line = 0;
        ++i;
      }
    }
    PD_UNROLL
    for (int k = 0; k < kRowsAtOnce; ++k) {
      if (takers[k] == 0) { continue; }
      store_chunk<Width>(to[k], chunk[k]);
      if (takers[k] == 1) { continue; }
      auto const entry  = (first + k) / path.lines;
      auto const offset = to[k] - target_of(a, entry);
      for (int taker = 1; taker < takers[k]; ++taker) {
        store_chunk<Width>(target_of(a, entry + taker) + offset, chunk[k]);
      }
    }
  }
}

/// Form `strided`.
template <int Width>
PD_HOST_DEVICE void gather_strided(GatherArguments const& a,
                                   StridedRow const& shape,
                                   std::int64_t thread,
                                   std::int64_t threads)
{
  for (auto item = thread; item < a.count * shape.elements; item += threads) {
    auto const i   = item / shape.elements;
    auto rest      = item - i * shape.elements;
    auto* const to = reinterpret_cast<Unit<Width>*>(target_of(a, i)) + rest;
    auto const row = row_of(a, i);
    if (row < 0) {
      report_bad(a, i);
      *to = all_ones<Unit<Width>>();
      continue;
    }
    auto offset = row * a.stride;
    for (int d = shape.dimensions; d-- > 0;) {
      auto const outer = rest / shape.dimension[d].size;
      offset += (rest - outer * shape.dimension[d].size) * shape.dimension[d].stride;
      rest = outer;
    }
    *to = load(reinterpret_cast<Unit<Width> const*>(a.table + offset));
  }
}

}  // namespace pytorch_direct
