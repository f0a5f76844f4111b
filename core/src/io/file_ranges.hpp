// SPDX-License-Identifier: Apache-2.0
/// @file
/// Free ranges of one file: neighbours coalesce, the best fit is found in logarithmic time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace datapath {

struct FileRange {
  std::uint64_t offset{0};
  std::uint64_t nbytes{0};
};

class FileRanges {
 public:
  /// A range that is free from now on. Throws DP_ERR_INTERNAL if a part of it is free already.
  void add(FileRange range);
  /// The smallest range that holds `nbytes`, cut to that size.
  [[nodiscard]] std::optional<FileRange> take_fit(std::uint64_t nbytes);
  /// The largest range, cut to `most` bytes.
  [[nodiscard]] std::optional<FileRange> take_largest(std::uint64_t most);

  [[nodiscard]] std::uint64_t nbytes() const noexcept { return nbytes_; }
  [[nodiscard]] std::uint64_t largest() const noexcept;
  /// Free bytes that end at `end`.
  [[nodiscard]] std::uint64_t nbytes_before(std::uint64_t end) const noexcept;
  [[nodiscard]] std::size_t count() const noexcept { return by_offset_.size(); }
  void clear() noexcept;

 private:
  using ByOffset = std::map<std::uint64_t, std::uint64_t>;
  [[nodiscard]] FileRange take(ByOffset::iterator at, std::uint64_t nbytes);
  void erase(ByOffset::iterator at);
  void insert(FileRange range);

  ByOffset by_offset_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;  ///< (bytes, offset)
  std::uint64_t nbytes_{0};
};

}  // namespace datapath
