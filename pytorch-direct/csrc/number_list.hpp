// SPDX-License-Identifier: Apache-2.0
/// @file
/// A growing list of numbers whose memory can be handed to Python; new entries are not cleared.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

namespace pytorch_direct {

class NumberList {
 public:
  NumberList()                             = default;
  NumberList(NumberList const&)            = delete;
  NumberList& operator=(NumberList const&) = delete;
  NumberList(NumberList&& other) noexcept
    : data_{std::exchange(other.data_, nullptr)},
      size_{std::exchange(other.size_, 0)},
      capacity_{std::exchange(other.capacity_, 0)}
  {}
  NumberList& operator=(NumberList&&) = delete;
  ~NumberList() { std::free(data_); }

  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] std::int64_t* data() { return data_; }
  std::int64_t& operator[](std::int64_t i) { return data_[i]; }

  void reserve(std::int64_t capacity)
  {
    if (capacity <= capacity_) { return; }
    auto const wanted = std::max(capacity, capacity_ + capacity_ / 2);
    auto* const moved =
      std::realloc(data_, static_cast<std::size_t>(wanted) * sizeof(std::int64_t));
    if (moved == nullptr) { throw std::bad_alloc{}; }
    data_     = static_cast<std::int64_t*>(moved);
    capacity_ = wanted;
  }

  void resize(std::int64_t size)
  {
    reserve(size);
    size_ = size;
  }

  void push(std::int64_t number)
  {
    if (size_ == capacity_) { reserve(size_ + 64); }
    data_[size_++] = number;
  }

  /// Gives the memory away, to be freed by `std::free`; the list is empty then.
  [[nodiscard]] std::int64_t* release()
  {
    size_ = capacity_ = 0;
    return std::exchange(data_, nullptr);
  }

 private:
  std::int64_t* data_    = nullptr;
  std::int64_t size_     = 0;
  std::int64_t capacity_ = 0;
};

}  // namespace pytorch_direct
