// SPDX-License-Identifier: Apache-2.0
/// @file
/// Free address ranges: best fit in logarithmic time, neighbours joined again on the way back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace datapath {

class FreeRanges {
 public:
  struct Range {
    std::uint64_t start;
    std::uint64_t end;
  };

  /// Adds a range that is not in here, and joins it with neighbours inside `limits`, which contains
  /// it.
  void insert(Range range, Range limits);

  /// Takes the smallest range that holds `nbytes` at that alignment (a power of two).
  [[nodiscard]] std::optional<std::uint64_t> take(std::uint64_t nbytes, std::uint64_t alignment);

  /// Takes a whole range that is in here exactly so.
  void remove(Range range);

  /// Bytes of the part that lie in here.
  [[nodiscard]] std::uint64_t overlap(Range part) const;

  [[nodiscard]] bool contains_exactly(Range range) const;
  [[nodiscard]] std::uint64_t total() const noexcept { return total_; }
  [[nodiscard]] std::size_t count() const noexcept { return by_start_.size(); }
  [[nodiscard]] std::uint64_t largest() const noexcept
  { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }
  [[nodiscard]] std::map<std::uint64_t, std::uint64_t> const& by_start() const noexcept
  { return by_start_; }

 private:
  using Iterator = std::map<std::uint64_t, std::uint64_t>::iterator;
  void add(Range range);
  void erase(Iterator position);

  std::map<std::uint64_t, std::uint64_t> by_start_;            ///< Start to end.
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;  ///< Size and start.
  std::uint64_t total_{0};
};

}  // namespace datapath
