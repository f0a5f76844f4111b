// SPDX-License-Identifier: Apache-2.0
/// @file
/// Free address ranges: best fit in logarithmic time, neighbours joined again on the way back.
#pragma once

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

  /// Takes a part that lies in here, over one range or several that touch.
  void take_at(Range part);

  /// Bytes of the part that lie in here.
  [[nodiscard]] std::uint64_t overlap(Range part) const;

  [[nodiscard]] bool contains_exactly(Range range) const;
  [[nodiscard]] std::uint64_t total() const noexcept { return total_; }
  [[nodiscard]] std::map<std::uint64_t, std::uint64_t> const& by_start() const noexcept
  { return by_start_; }

 private:
  using Iterator = std::map<std::uint64_t, std::uint64_t>::iterator;
  void add(Range range);
  void erase(Iterator position);
  [[nodiscard]] std::uint64_t carve(Iterator position, Range part);

  std::map<std::uint64_t, std::uint64_t> by_start_;            ///< Start to end.
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;  ///< Size and start.
  std::uint64_t total_{0};
};

}  // namespace datapath
