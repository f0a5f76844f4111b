// SPDX-License-Identifier: Apache-2.0
#include "io/file_ranges.hpp"

#include "support/error.hpp"

#include <algorithm>
#include <string>

namespace datapath {

void FileRanges::insert(FileRange range)
{
  by_offset_.emplace(range.offset, range.nbytes);
  by_size_.emplace(range.nbytes, range.offset);
  nbytes_ += range.nbytes;
}

void FileRanges::erase(ByOffset::iterator at)
{
  by_size_.erase({at->second, at->first});
  nbytes_ -= at->second;
  by_offset_.erase(at);
}

void FileRanges::add(FileRange range)
{
  if (range.nbytes == 0) { return; }
  auto const next = by_offset_.lower_bound(range.offset);
  bool overlaps   = next != by_offset_.end() && next->first < range.offset + range.nbytes;
  auto previous   = by_offset_.end();
  if (next != by_offset_.begin()) {
    previous = std::prev(next);
    overlaps = overlaps || previous->first + previous->second > range.offset;
  }
  if (overlaps) {
    fail(DP_ERR_INTERNAL,
         "bytes " + std::to_string(range.offset) + " to " +
           std::to_string(range.offset + range.nbytes) + " of a volume are freed twice");
  }
  if (next != by_offset_.end() && next->first == range.offset + range.nbytes) {
    range.nbytes += next->second;
    erase(next);
  }
  if (previous != by_offset_.end() && previous->first + previous->second == range.offset) {
    range.offset = previous->first;
    range.nbytes += previous->second;
    erase(previous);
  }
  insert(range);
}

FileRange FileRanges::take(ByOffset::iterator at, std::uint64_t nbytes)
{
  FileRange const whole{at->first, at->second};
  auto const taken = std::min(nbytes, whole.nbytes);
  erase(at);
  if (taken < whole.nbytes) { insert({whole.offset + taken, whole.nbytes - taken}); }
  return {whole.offset, taken};
}

std::optional<FileRange> FileRanges::take_fit(std::uint64_t nbytes)
{
  auto const found = by_size_.lower_bound({nbytes, 0});
  if (found == by_size_.end()) { return std::nullopt; }
  return take(by_offset_.find(found->second), nbytes);
}

std::optional<FileRange> FileRanges::take_largest(std::uint64_t most)
{
  if (by_size_.empty()) { return std::nullopt; }
  return take(by_offset_.find(by_size_.rbegin()->second), most);
}

std::uint64_t FileRanges::largest() const noexcept
{ return by_size_.empty() ? 0 : by_size_.rbegin()->first; }

std::uint64_t FileRanges::nbytes_before(std::uint64_t end) const noexcept
{
  if (by_offset_.empty()) { return 0; }
  auto const last = std::prev(by_offset_.end());
  return last->first + last->second == end ? last->second : 0;
}

void FileRanges::clear() noexcept
{
  by_offset_.clear();
  by_size_.clear();
  nbytes_ = 0;
}

}  // namespace datapath
