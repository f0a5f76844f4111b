// SPDX-License-Identifier: Apache-2.0
/// @file
/// The two descriptors of an open file, buffered and O_DIRECT, and the alignment that the second
/// asks for.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace datapath {

enum class DirectMode : std::uint8_t { automatic, required, never };

/// Closes both descriptors at its end.
struct Descriptors {
  Descriptors()                              = default;
  Descriptors(Descriptors const&)            = delete;
  Descriptors& operator=(Descriptors const&) = delete;
  ~Descriptors();

  int buffered{-1};
  int direct{-1};  ///< -1: every byte goes through the page cache.
  std::uint32_t memory_alignment{1};
  std::uint32_t read_alignment{1};
  /// At least a page: a page is written either directly or through the cache, never both. Otherwise
  /// the write-back of a page that a small write dirtied could undo a direct write to its other
  /// bytes.
  std::uint32_t write_alignment{1};
  bool direct_required{
    false};  ///< An aligned direct request fails rather than go through the cache.
  std::atomic<bool> direct_refused{
    false};  ///< The file system answered EINVAL to an aligned request.
  std::string path;
  std::string direct_reason;  ///< Why there is no direct descriptor; empty if there is.

  [[nodiscard]] bool use_direct() const noexcept
  { return direct >= 0 && !direct_refused.load(std::memory_order_relaxed); }
  /// An aligned direct request failed with EINVAL: all that follows goes through the page cache.
  /// Logged.
  void refuse_direct() noexcept;
};

/// Opens the direct descriptor beside `file.buffered` on the same inode, with the access mode of
/// `flags`. Throws DP_ERR_UNSUPPORTED where `mode` requires it and the file system refuses.
void open_direct(Descriptors& file, int flags, DirectMode mode);

}  // namespace datapath
