// SPDX-License-Identifier: Apache-2.0
/// @file
/// One directory of a volume: its file, its free ranges and its own queue.
#pragma once

#include "io/backend.hpp"
#include "io/file_ranges.hpp"
#include "io/spill_file.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace datapath {

/// Not locked: the volume's lock is held around everything but `backend` and `descriptors`.
class Drive {
 public:
  Drive(std::string directory, bool keep, DirectMode direct, Backend& backend);

  /// Free bytes of the file system that the file never takes.
  void set_reserve_bytes(std::uint64_t nbytes) noexcept { reserve_bytes_ = nbytes; }

  [[nodiscard]] Backend& backend() const noexcept { return *backend_; }
  [[nodiscard]] SpillFile& file() noexcept { return file_; }
  [[nodiscard]] SpillFile const& file() const noexcept { return file_; }
  [[nodiscard]] FileRanges const& free_ranges() const noexcept { return free_; }
  [[nodiscard]] std::uint64_t backed() const noexcept { return backed_; }
  [[nodiscard]] std::uint64_t allocated() const noexcept { return backed_ - free_.nbytes(); }
  [[nodiscard]] std::uint64_t reserve_bytes() const noexcept { return reserve_bytes_; }
  /// Why the file did not grow when that was last tried; empty if it did.
  [[nodiscard]] std::string const& grow_error() const noexcept { return grow_error_; }

  /// Bytes by which the file may grow before the reserve is touched, in whole grains.
  [[nodiscard]] std::uint64_t room(std::uint64_t grain) const;
  /// False: the file system refused, and `grow_error` says why.
  [[nodiscard]] bool grow(std::uint64_t by);
  /// One range if there is one that fits.
  [[nodiscard]] bool take_one(std::uint64_t nbytes, std::vector<FileRange>& out);
  /// As many ranges as it needs; `nbytes` of them must be free.
  void take_many(std::uint64_t nbytes, std::vector<FileRange>& out);
  void give_back(FileRange range) { free_.add(range); }
  /// Nothing is backed any more.
  void close(bool requests_pending) noexcept;

 private:
  SpillFile file_;
  FileRanges free_;
  Backend* backend_;
  std::uint64_t reserve_bytes_{0};
  std::uint64_t backed_{0};
  std::string grow_error_;
};

}  // namespace datapath
