// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a kernel is told that changes rows of a table by id: additions, and steps of optimisers.
#pragma once

#include "gather_arguments.hpp"

#include <cstddef>
#include <cstdint>

namespace pytorch_direct {

/// Number types of a table.
enum class Number : std::int32_t {
  float64,
  float32,
  float16,
  bfloat16,
  int8,
  uint8,
  int16,
  int32,
  int64
};

/// What happens to a row; g is the sum of the rows given for it, in the order in which they stand.
enum class Rule : std::int32_t {
  add,      ///< Each given row is added, one after another.
  sgd,      ///< p -= rate g
  adagrad,  ///< s += g^2; p -= rate g / (sqrt(s) + epsilon)
  adam      ///< Both moments move towards g; p -= rate m / (sqrt(v) + epsilon)
};

struct UpdateArguments {
  std::byte* table;
  std::int64_t rows;
  std::int64_t stride;        ///< Numbers from row to row.
  std::int64_t width;         ///< Numbers of a row, contiguous.
  std::int64_t const* ids;    ///< Ascending; one may stand several times.
  std::int64_t const* order;  ///< Which given row belongs to entry i; null: row i.
  std::int64_t count;
  std::byte const* given;  ///< Packed rows of the table's type.
  std::byte* first;        ///< State of adagrad (s) and adam (m): packed, of the type of sums.
  std::byte* second;       ///< State of adam (v).
  double rate;
  double epsilon;
  double first_decay;   ///< What a new gradient weighs in the first moment: 1 - beta1.
  double second_decay;  ///< 1 - beta2.
};

/// One group of this many threads changes a row.
inline constexpr int kUpdateLaneBits = 5;

/// Columns that a thread has under way at once.
inline constexpr int kColumnsAtOnce = 4;

}  // namespace pytorch_direct
