// SPDX-License-Identifier: Apache-2.0
/// @file
/// Numbers of the nodes of a batch: an open-addressing hash map as large as the batch, not as the
/// graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pytorch_direct {

class NodeMap {
 public:
  /// Make room for `count` keys, so that `number_of` never has to grow on the way.
  void reserve(std::size_t count)
  {
    if (count * 2 > slots_.size()) { grow(count); }
  }

  /// The number of a key; `next` if it has none yet, which is its number then. There must be room.
  std::int64_t number_of(std::uint64_t key, std::int64_t next)
  {
    for (auto i = home(key);; i = (i + 1) & (slots_.size() - 1)) {
      auto& slot = slots_[i];
      if (slot.key == key) { return slot.number; }
      if (slot.key == kFree) {
        slot = {key, next};
        ++used_;
        return next;
      }
    }
  }

  void prefetch(std::uint64_t key) const { __builtin_prefetch(&slots_[home(key)], 1); }

  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};

  struct Slot {
    std::uint64_t key   = kFree;
    std::int64_t number = 0;
  };

  /// Fibonacci hashing: the high bits of a product are those that all bits of the key reach.
  [[nodiscard]] std::size_t home(std::uint64_t key) const
  { return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15ULL) >> shift_); }

  void grow(std::size_t count)
  {
    std::size_t size = 64;
    int bits         = 6;
    while (size < count * 2) {
      size *= 2;
      ++bits;
    }
    std::vector<Slot> old(size);
    old.swap(slots_);
    shift_ = 64 - bits;
    for (auto const& slot : old) {
      if (slot.key == kFree) { continue; }
      auto i = home(slot.key);
      while (slots_[i].key != kFree) { i = (i + 1) & (size - 1); }
      slots_[i] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t used_ = 0;
  int shift_        = 64;
};

}  // namespace pytorch_direct
