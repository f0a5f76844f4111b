// SPDX-License-Identifier: Apache-2.0
/// @file
/// One system call's worth of work, and the intrusive list in which such pieces travel.
#pragma once

#include "io/descriptors.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace datapath {

class Backend;
class IoBatch;

enum class IoOp : std::uint8_t { read, write };

/// A part of a request, cut so that one call can serve it. Progress moves its fields forward, so
/// they always say what is left.
struct IoPiece {
  IoPiece* next{nullptr};
  IoBatch* batch{nullptr};
  Backend* backend{nullptr};  ///< Where it is submitted, and again after a short transfer.
  Descriptors* file{nullptr};
  std::byte* pointer{nullptr};
  std::uint64_t nbytes{0};
  std::uint64_t offset{0};
  std::uint32_t attempt_limit{0};  ///< Bytes of the next attempt at most; 0: all that is left.
  std::uint16_t stalls{0};         ///< Attempts in a row that moved nothing.
  IoOp op{IoOp::read};
  bool direct{false};  ///< Through the O_DIRECT descriptor.
  bool device_memory{false};

  [[nodiscard]] int fd() const noexcept { return direct ? file->direct : file->buffered; }
  [[nodiscard]] std::uint64_t attempt_bytes() const noexcept
  { return attempt_limit == 0 ? nbytes : std::min<std::uint64_t>(attempt_limit, nbytes); }
};

/// A singly linked list that owns nothing.
class IoList {
 public:
  [[nodiscard]] bool empty() const noexcept { return head_ == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] IoPiece* front() const noexcept { return head_; }

  void push_back(IoPiece& piece) noexcept
  {
    piece.next                               = nullptr;
    (tail_ == nullptr ? head_ : tail_->next) = &piece;
    tail_                                    = &piece;
    ++size_;
  }

  /// nullptr when empty.
  IoPiece* pop_front() noexcept
  {
    auto* const piece = head_;
    if (piece == nullptr) { return nullptr; }
    head_ = piece->next;
    if (head_ == nullptr) { tail_ = nullptr; }
    piece->next = nullptr;
    --size_;
    return piece;
  }

  /// Moves everything from `other` behind what is here.
  void append(IoList& other) noexcept
  {
    if (other.empty()) { return; }
    (tail_ == nullptr ? head_ : tail_->next) = other.head_;
    tail_                                    = other.tail_;
    size_ += other.size_;
    other = IoList{};
  }

 private:
  IoPiece* head_{nullptr};
  IoPiece* tail_{nullptr};
  std::size_t size_{0};
};

}  // namespace datapath
