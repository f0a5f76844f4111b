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

/// Form `direct`.
template <int Width>
PD_HOST_DEVICE void gather_direct(GatherArguments const& a,
                                  GatherPath const& path,
                                  std::int64_t thread,
                                  std::int64_t threads)
{
  auto const lane  = thread & ((std::int64_t{1} << path.lane_bits) - 1);
  auto const lanes = std::int64_t{1} << path.lane_bits;
  auto const step  = threads >> path.lane_bits;
  auto const units = a.row_bytes / Width;
  for (auto i = thread >> path.lane_bits; i < a.count; i += step) {
    auto const row = row_of(a, i);
    auto* const to = reinterpret_cast<Unit<Width>*>(target_of(a, i));
    if (row < 0) {
      report_bad(a, i);
      for (auto unit = lane; unit < units; unit += lanes) { to[unit] = all_ones<Unit<Width>>(); }
      continue;
    }
    auto const* const from = reinterpret_cast<Unit<Width> const*>(a.table + row * a.stride);
    for (auto unit = lane; unit < units; unit += lanes) { to[unit] = load(from + unit); }
  }
}

/// Store 16 bytes as units of `Width`.
template <int Width>
PD_HOST_DEVICE void store_chunk(std::byte* to, Unit128 const& chunk)
{
  if constexpr (Width == 16) {
    *reinterpret_cast<Unit128*>(to) = chunk;
  } else {
    constexpr int kPerWord = 8 / Width;
    for (int unit = 0; unit < 16 / Width; ++unit) {
      auto const word = chunk.word[unit / kPerWord] >> (unit % kPerWord * Width * 8);
      reinterpret_cast<Unit<Width>*>(to)[unit] = static_cast<Unit<Width>>(word);
    }
  }
}

/// Form `line`: thread 0 of 8 begins at a line boundary at or before the row, and what lies outside
/// of the row is left out, never read.
template <int Width>
PD_HOST_DEVICE void gather_line(GatherArguments const& a,
                                GatherPath const& path,
                                std::int64_t thread,
                                std::int64_t threads)
{
  auto const group  = thread >> 3;
  auto const groups = threads >> 3;
  auto const lane   = thread & 7;
  auto const step   = groups / path.lines;
  auto const turn   = groups % path.lines;
  auto line         = group % path.lines;
  for (auto i = group / path.lines; i < a.count; i += step) {
    auto const row     = row_of(a, i);
    auto* const target = target_of(a, i);
    // Where the row's first byte stands in its line; a bad row is filled as if it began one.
    auto const* const begin = row < 0 ? nullptr : a.table + row * a.stride;
    auto const lead   = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(begin) &
                                                  static_cast<std::uintptr_t>(kLineBytes - 1));
    auto const offset = line * kLineBytes + lane * 16 - lead;
    bool const whole  = offset >= 0 && offset + 16 <= a.row_bytes;
    if (row < 0) { report_bad(a, i); }
    if (whole) {
      auto const chunk =
        row < 0 ? all_ones<Unit128>() : load(reinterpret_cast<Unit128 const*>(begin + offset));
      store_chunk<Width>(target + offset, chunk);
    } else {
      for (auto at = offset; at < offset + 16; at += Width) {
        if (at < 0 || at >= a.row_bytes) { continue; }
        *reinterpret_cast<Unit<Width>*>(target + at) =
          row < 0 ? all_ones<Unit<Width>>()
                  : load(reinterpret_cast<Unit<Width> const*>(begin + at));
      }
    }
    line += turn;
    if (line >= path.lines) {
      line -= path.lines;
      ++i;
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
