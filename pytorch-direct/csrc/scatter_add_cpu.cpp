// SPDX-License-Identifier: Apache-2.0
#include "scatter_add_cpu.hpp"

#include "thread_pool.hpp"

#include <algorithm>
#include <type_traits>

namespace pytorch_direct {
namespace {

// Below this, handing work to other threads costs more than it saves.
constexpr std::int64_t kNumbersPerPart = 1 << 14;

template <class Id>
std::int64_t first_bad_id(ScatterArguments const& s)
{
  auto const* const ids = static_cast<Id const*>(s.ids);
  for (std::int64_t i = 0; i < s.count; ++i) {
    if (ids[i] < 0 || ids[i] >= s.rows) { return i; }
  }
  return -1;
}

/// Each part owns a range of the table's rows and looks at every id: no two threads write one row,
/// and the order of additions to a row does not depend on the number of parts.
template <class T, class Id>
void add_part(ScatterArguments const& s, std::int64_t begin, std::int64_t end)
{
  // Integers wrap around as torch's do.
  using Sum =
    std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;
  auto const* const ids   = static_cast<Id const*>(s.ids);
  auto* const table       = static_cast<Sum*>(s.table);
  auto const* const added = static_cast<Sum const*>(s.added);
  for (std::int64_t i = 0; i < s.count; ++i) {
    auto const id = std::int64_t{ids[i]};
    if (id < begin || id >= end) { continue; }
    auto* const to         = table + id * s.row_numbers;
    auto const* const from = added + i * s.row_numbers;
    for (std::int64_t j = 0; j < s.row_numbers; ++j) { to[j] += from[j]; }
  }
}

template <class Id>
std::int64_t scatter_add(ScatterArguments const& s, Number number, int threads)
{
  if (auto const bad = first_bad_id<Id>(s); bad >= 0) { return bad; }
  auto const wanted = s.count * s.row_numbers / kNumbersPerPart;
  auto const parts  = std::clamp<std::int64_t>(wanted, 1, std::max(1, threads));
  parallel_chunks(parts, threads, [&](std::int64_t part) {
    auto const begin = s.rows * part / parts;
    auto const end   = s.rows * (part + 1) / parts;
    switch (number) {
      case Number::float32:
        return add_part<float, Id>(s, begin, end);
      case Number::float64:
        return add_part<double, Id>(s, begin, end);
      case Number::int32:
        return add_part<std::int32_t, Id>(s, begin, end);
      default:
        return add_part<std::int64_t, Id>(s, begin, end);
    }
  });
  return -1;
}

}  // namespace

std::int64_t scatter_add_cpu(ScatterArguments const& arguments, Number number, int threads)
{
  return arguments.ids_are_64_bit ? scatter_add<std::int64_t>(arguments, number, threads)
                                  : scatter_add<std::int32_t>(arguments, number, threads);
}

}  // namespace pytorch_direct
