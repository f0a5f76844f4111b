// SPDX-License-Identifier: Apache-2.0
/// @file
/// What one thread of a gather with conversion does.
#pragma once

#include "gather_body.hpp"
#include "gather_cast.hpp"
#include "number.hpp"

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <type_traits>

namespace pytorch_direct {

/// Rows that a thread converts at once.
inline constexpr int kCastRowsAtOnce = 2;

/// Store `Bytes` of converted numbers, 16 bytes at a time where `wide` says that all of the output is
/// aligned for that.
template <int Bytes, class To>
PD_HOST_DEVICE void store_numbers(To* to, To const* result, bool wide)
{
  constexpr int kStore = Bytes < 16 ? Bytes : 16;
  if (wide) {
    PD_UNROLL
    for (int n = 0; n < Bytes / kStore; ++n) {
      Unit<kStore> bits;
      memcpy(&bits, reinterpret_cast<std::byte const*>(result) + n * kStore, kStore);
      reinterpret_cast<Unit<kStore>*>(to)[n] = bits;
    }
    return;
  }
  PD_UNROLL
  for (int n = 0; n < Bytes / static_cast<int>(sizeof(To)); ++n) { to[n] = result[n]; }
}

/// `1 << lane_bits` threads a row; each loads `LoadBytes` of numbers at a time.
template <class From, class To, int LoadBytes>
PD_HOST_DEVICE void gather_cast_rows(GatherArguments const& a,
                                     Conversion const& c,
                                     int lane_bits,
                                     std::int64_t thread,
                                     std::int64_t threads)
{
  constexpr int kNumbers = LoadBytes / static_cast<int>(sizeof(From));
  constexpr int kRows    = kCastRowsAtOnce;
  auto const lanes       = std::int64_t{1} << lane_bits;
  auto const lane        = thread & (lanes - 1);
  auto const groups      = threads >> lane_bits;
  auto const loads       = c.elements / kNumbers;
  // What a thread converts at a time divides a row, so that only the first address can be odd.
  constexpr int kBytes = kNumbers * static_cast<int>(sizeof(To));
  bool const wide      = reinterpret_cast<std::uintptr_t>(a.out) % (kBytes < 16 ? kBytes : 16) == 0;
  for (auto first = (thread >> lane_bits) * kRows; first < a.count; first += groups * kRows) {
    Unit<LoadBytes> const* from[kRows];
    float factor[kRows];
    int takers[kRows];
    PD_UNROLL
    for (int k = 0; k < kRows; ++k) {
      takers[k] = takers_of(a, first + k);
      from[k]   = nullptr;
      factor[k] = c.factor;
      if (takers[k] == 0) { continue; }
      auto const row = row_of(a, first + k);
      if (row < 0) {
        report_bad(a, first + k);
        continue;
      }
      from[k] = reinterpret_cast<Unit<LoadBytes> const*>(a.table + row * a.stride);
      if (c.row_factor != nullptr) { factor[k] *= load(c.row_factor + row); }
    }
    for (auto at = lane; at < loads; at += lanes) {
      Unit<LoadBytes> bits[kRows];
      PD_UNROLL
      for (int k = 0; k < kRows; ++k) {
        bits[k] = from[k] == nullptr ? all_ones<Unit<LoadBytes>>() : load(from[k] + at);
      }
      PD_UNROLL
      for (int k = 0; k < kRows; ++k) {
        if (takers[k] == 0) { continue; }
        From number[static_cast<std::size_t>(kNumbers)];
        To result[static_cast<std::size_t>(kNumbers)];
        memcpy(number, &bits[k], LoadBytes);
        PD_UNROLL
        for (int n = 0; n < kNumbers; ++n) {
          auto const value = float_of(number[n]);
          result[n]        = number_of<To>(c.scaled ? value * factor[k] : value);
        }
        if (from[k] == nullptr) { memset(static_cast<void*>(result), 0xFF, sizeof result); }
        for (int taker = 0; taker < takers[k]; ++taker) {
          auto* const to = reinterpret_cast<To*>(target_of(a, first + k + taker)) + at * kNumbers;
          store_numbers<kBytes>(to, result, wide);
        }
      }
    }
  }
}

/// Call `run.template operator()<From, To, LoadBytes>()` for the types of a conversion.
template <class From, class To, class Run>
void with_load_bytes(int load_bytes, Run&& run)
{
  if (load_bytes == 16) { return run.template operator()<From, To, 16>(); }
  run.template operator()<From, To, static_cast<int>(sizeof(From))>();
}

template <class From, class Run>
void with_target(Cast to, int load_bytes, Run&& run)
{
  switch (to) {
    case Cast::float32:
      return with_load_bytes<From, float>(load_bytes, run);
    case Cast::float16:
      return with_load_bytes<From, Half>(load_bytes, run);
    case Cast::bfloat16:
      return with_load_bytes<From, Bfloat16>(load_bytes, run);
    default:
      throw std::invalid_argument("gather_cast: no kernel converts to this type");
  }
}

template <class Run>
void with_conversion(Conversion const& c, int load_bytes, Run&& run)
{
  switch (c.from) {
    case Cast::float64:
      return with_target<double>(c.to, load_bytes, run);
    case Cast::float32:
      return with_target<float>(c.to, load_bytes, run);
    case Cast::float16:
      return with_target<Half>(c.to, load_bytes, run);
    case Cast::bfloat16:
      return with_target<Bfloat16>(c.to, load_bytes, run);
    case Cast::float8_e4m3fn:
      return with_target<Float8E4m3>(c.to, load_bytes, run);
    case Cast::float8_e5m2:
      return with_target<Float8E5m2>(c.to, load_bytes, run);
    case Cast::int8:
      return with_target<std::int8_t>(c.to, load_bytes, run);
    case Cast::uint8:
      return with_target<std::uint8_t>(c.to, load_bytes, run);
    default:
      throw std::invalid_argument("gather_cast: no kernel converts from this type");
  }
}

}  // namespace pytorch_direct
