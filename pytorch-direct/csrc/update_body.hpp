// SPDX-License-Identifier: Apache-2.0
/// @file
/// What one thread does that changes rows of a table by id. Each row has one owner, which reads
/// and writes it once and needs no atomic operation, and sums are made in one order: the result is
/// the same to the last bit on host and device.
#pragma once

#include "number.hpp"
#include "update_arguments.hpp"

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <type_traits>

namespace pytorch_direct {

/// What numbers of type T are added up in. Integers wrap around as torch's do.
template <class T>
struct SumOf {
  using type = float;
};
template <>
struct SumOf<double> {
  using type = double;
};
template <class T>
  requires std::is_integral_v<T>
struct SumOf<T> {
  using type = std::make_unsigned_t<T>;
};
template <class T>
using Sum = typename SumOf<T>::type;

template <class T>
PD_HOST_DEVICE Sum<T> sum_of(T value)
{
  if constexpr (std::is_same_v<Sum<T>, float>) {
    return float_of(value);
  } else {
    return static_cast<Sum<T>>(value);
  }
}

template <class T>
PD_HOST_DEVICE T rounded(Sum<T> value)
{
  if constexpr (std::is_same_v<Sum<T>, float>) {
    return number_of<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

/// A number of a row with its state, as loaded and as to be stored.
template <class S>
struct Cell {
  S value;
  S first;
  S second;
};

template <Rule R, class S>
PD_HOST_DEVICE void step(Cell<S>& cell, S gradient, UpdateArguments const& a)
{
  if constexpr (R == Rule::sgd) {
    cell.value -= static_cast<S>(a.rate) * gradient;
  } else if constexpr (R == Rule::adagrad) {
    cell.first += gradient * gradient;
    cell.value -=
      static_cast<S>(a.rate) * (gradient / (std::sqrt(cell.first) + static_cast<S>(a.epsilon)));
  } else if constexpr (R == Rule::adam) {
    cell.first += (gradient - cell.first) * static_cast<S>(a.first_decay);
    cell.second += (gradient * gradient - cell.second) * static_cast<S>(a.second_decay);
    cell.value -=
      static_cast<S>(a.rate) * (cell.first / (std::sqrt(cell.second) + static_cast<S>(a.epsilon)));
  }
}

PD_HOST_DEVICE std::int64_t given_row(UpdateArguments const& a, std::int64_t entry)
{ return a.order == nullptr ? entry : a.order[entry]; }

/// Change the row of entry `begin`, for which the rows of all entries before `end` are given:
/// columns `lane`, `lane + lanes` and so on.
template <class T, Rule R>
PD_HOST_DEVICE void update_row(UpdateArguments const& a,
                               std::int64_t begin,
                               std::int64_t end,
                               std::int64_t lane,
                               std::int64_t lanes)
{
  using S                 = Sum<T>;
  auto const row          = a.ids[begin];
  auto* const table       = reinterpret_cast<T*>(a.table) + row * a.stride;
  auto* const first       = reinterpret_cast<S*>(a.first) + row * a.width;
  auto* const second      = reinterpret_cast<S*>(a.second) + row * a.width;
  auto const* const given = reinterpret_cast<T const*>(a.given);
  auto const* const one   = given + given_row(a, begin) * a.width;
  for (auto from = lane; from < a.width; from += lanes * kColumnsAtOnce) {
    Cell<S> cell[kColumnsAtOnce];
    S sum[kColumnsAtOnce];
    PD_UNROLL
    for (int c = 0; c < kColumnsAtOnce; ++c) {
      auto const column = from + c * lanes;
      cell[c]           = {};
      sum[c]            = {};
      if (column >= a.width) { continue; }
      cell[c].value = sum_of(table[column]);
      if constexpr (R == Rule::adagrad || R == Rule::adam) { cell[c].first = first[column]; }
      if constexpr (R == Rule::adam) { cell[c].second = second[column]; }
      sum[c] = sum_of(one[column]);
      if constexpr (R == Rule::add) { sum[c] = static_cast<S>(cell[c].value + sum[c]); }
    }
    for (auto entry = begin + 1; entry < end; ++entry) {
      auto const* const more = given + given_row(a, entry) * a.width;
      PD_UNROLL
      for (int c = 0; c < kColumnsAtOnce; ++c) {
        auto const column = from + c * lanes;
        if (column < a.width) { sum[c] = static_cast<S>(sum[c] + sum_of(more[column])); }
      }
    }
    PD_UNROLL
    for (int c = 0; c < kColumnsAtOnce; ++c) {
      auto const column = from + c * lanes;
      if (column >= a.width) { continue; }
      if constexpr (R == Rule::add) {
        cell[c].value = sum[c];
      } else {
        step<R>(cell[c], sum[c], a);
      }
      table[column] = rounded<T>(cell[c].value);
      if constexpr (R == Rule::adagrad || R == Rule::adam) { first[column] = cell[c].first; }
      if constexpr (R == Rule::adam) { second[column] = cell[c].second; }
    }
  }
}

/// The end of the run of equal ids that entry `i` begins; `i` itself if it begins none, or if its
/// id is out of range and nothing is to be changed.
PD_HOST_DEVICE std::int64_t run_end(UpdateArguments const& a, std::int64_t i)
{
  auto const id = a.ids[i];
  if (id < 0 || id >= a.rows || (i > 0 && a.ids[i - 1] == id)) { return i; }
  auto end = i + 1;
  while (end < a.count && a.ids[end] == id) { ++end; }
  return end;
}

/// `1 << lane_bits` threads a row.
template <class T, Rule R>
PD_HOST_DEVICE void update_rows(UpdateArguments const& a,
                                int lane_bits,
                                std::int64_t thread,
                                std::int64_t threads)
{
  auto const lanes = std::int64_t{1} << lane_bits;
  for (auto i = thread >> lane_bits; i < a.count; i += threads >> lane_bits) {
    auto const end = run_end(a, i);
    if (end > i) { update_row<T, R>(a, i, end, thread & (lanes - 1), lanes); }
  }
}

template <class T, class Run>
void with_rule(Rule rule, Run&& run)
{
  switch (rule) {
    case Rule::add:
      return run.template operator()<T, Rule::add>();
    case Rule::sgd:
      return run.template operator()<T, Rule::sgd>();
    case Rule::adagrad:
      return run.template operator()<T, Rule::adagrad>();
    case Rule::adam:
      return run.template operator()<T, Rule::adam>();
  }
}

/// Call `run.template operator()<T, Rule>()` for a type of numbers and a rule.
template <class Run>
void with_update(Number number, Rule rule, Run&& run)
{
  switch (number) {
    case Number::float64:
      return with_rule<double>(rule, run);
    case Number::float32:
      return with_rule<float>(rule, run);
    case Number::float16:
      return with_rule<Half>(rule, run);
    case Number::bfloat16:
      return with_rule<Bfloat16>(rule, run);
    default:
      break;
  }
  if (rule != Rule::add) { throw std::invalid_argument("optimisers take floating-point tables"); }
  switch (number) {
    case Number::int8:
      return run.template operator()<std::int8_t, Rule::add>();
    case Number::uint8:
      return run.template operator()<std::uint8_t, Rule::add>();
    case Number::int16:
      return run.template operator()<std::int16_t, Rule::add>();
    case Number::int32:
      return run.template operator()<std::int32_t, Rule::add>();
    default:
      return run.template operator()<std::int64_t, Rule::add>();
  }
}

}  // namespace pytorch_direct
