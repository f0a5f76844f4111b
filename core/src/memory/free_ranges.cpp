// SPDX-License-Identifier: Apache-2.0
#include "memory/free_ranges.hpp"

#include "memory/pages.hpp"

#include <algorithm>
#include <iterator>

namespace datapath {

namespace {

/// Ranges of the wanted size that are tried before one is taken that is sure to fit.
constexpr int aligned_tries = 8;

}  // namespace

void FreeRanges::add(Range range)
{
  if (range.start == range.end) { return; }
  by_start_.emplace(range.start, range.end);
  by_size_.emplace(range.end - range.start, range.start);
  total_ += range.end - range.start;
}

void FreeRanges::erase(Iterator position)
{
  auto const [start, end] = *position;
  by_size_.erase({end - start, start});
  by_start_.erase(position);
  total_ -= end - start;
}

void FreeRanges::insert(Range range, Range limits)
{
  auto next = by_start_.lower_bound(range.start);
  if (next != by_start_.end() && next->first == range.end && range.end < limits.end) {
    range.end = next->second;
    erase(next);
  }
  next = by_start_.lower_bound(range.start);
  if (next != by_start_.begin()) {
    auto const previous = std::prev(next);
    if (previous->second == range.start && range.start > limits.start) {
      range.start = previous->first;
      erase(previous);
    }
  }
  add(range);
}

std::optional<std::uint64_t> FreeRanges::take(std::uint64_t nbytes, std::uint64_t alignment)
{
  auto const fits = [&](auto const& entry) {
    return round_up(entry->second, alignment) + nbytes <= entry->second + entry->first;
  };
  auto candidate = by_size_.lower_bound({nbytes, 0});
  for (int tries = 0; tries < aligned_tries && candidate != by_size_.end() && !fits(candidate);
       ++tries) {
    ++candidate;
  }
  if (candidate != by_size_.end() && !fits(candidate)) {
    candidate = by_size_.lower_bound({nbytes + alignment - allocation_grain, 0});
  }
  if (candidate == by_size_.end()) { return std::nullopt; }
  auto const [size, from] = *candidate;
  auto const start        = round_up(from, alignment);
  erase(by_start_.find(from));
  add({from, start});
  add({start + nbytes, from + size});
  return start;
}

void FreeRanges::remove(Range range)
{ erase(by_start_.find(range.start)); }

std::uint64_t FreeRanges::overlap(Range part) const
{
  std::uint64_t bytes = 0;
  auto position       = by_start_.upper_bound(part.start);
  if (position != by_start_.begin()) { --position; }
  for (; position != by_start_.end() && position->first < part.end; ++position) {
    auto const start = std::max(position->first, part.start);
    auto const end   = std::min(position->second, part.end);
    if (start < end) { bytes += end - start; }
  }
  return bytes;
}

bool FreeRanges::contains_exactly(Range range) const
{
  auto const found = by_start_.find(range.start);
  return found != by_start_.end() && found->second == range.end;
}

}  // namespace datapath
