// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where a volume's extents lie: on which drives, striped or not, under the ceiling and the drives'
/// reserves.
#pragma once

#include "io/drive.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace datapath {

/// A part of an extent that lies in one piece on one drive.
struct ExtentRun {
  std::uint64_t logical{0};  ///< Where it begins in the extent.
  std::uint64_t nbytes{0};
  std::uint64_t offset{0};  ///< In the drive's file.
  Drive* drive{nullptr};
};

struct SpaceLimits {
  std::uint64_t capacity{0};
  std::uint64_t segment_bytes{0};
  std::uint64_t stripe_bytes{0};
  std::uint64_t grain{4096};
};

struct SpaceCounts {
  std::uint64_t backed{0};
  std::uint64_t allocated{0};
  std::uint64_t requested{0};
  std::uint64_t extents{0};
};

class VolumeSpace {
 public:
  VolumeSpace(std::vector<std::unique_ptr<Drive>> drives, SpaceLimits limits);

  /// Runs that cover `nbytes`, in logical order. Throws DP_ERR_NO_SPACE.
  [[nodiscard]] std::vector<ExtentRun> allocate(std::uint64_t nbytes);
  /// What `allocate` gave for `nbytes`.
  void give_back(std::span<ExtentRun const> runs, std::uint64_t nbytes) noexcept;

  [[nodiscard]] SpaceCounts counts() const;
  [[nodiscard]] SpaceLimits const& limits() const noexcept { return limits_; }
  [[nodiscard]] std::size_t drive_count() const noexcept { return drives_.size(); }
  void describe(JsonWriter& json) const;
  /// Closes the files; `requests_pending`: some request never ended.
  void close(bool requests_pending) noexcept;

 private:
  /// What one call of `allocate` has found out and taken so far.
  struct Attempt;

  [[nodiscard]] std::vector<ExtentRun> try_drives(Attempt& attempt, std::uint64_t total);
  [[nodiscard]] std::vector<ExtentRun> try_anywhere(Attempt& attempt, std::uint64_t total);
  [[nodiscard]] bool secure(Attempt& attempt, std::size_t drive, std::uint64_t nbytes);
  [[nodiscard]] bool grow(Attempt& attempt, std::size_t drive, std::uint64_t needed);
  [[nodiscard]] std::uint64_t room(Attempt const& attempt, std::size_t drive) const;
  [[nodiscard]] std::vector<std::size_t> usable_drives(Attempt const& attempt);
  void undo(Attempt& attempt);
  [[noreturn]] void fail_full(std::uint64_t asked) const;

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Drive>> drives_;
  SpaceLimits limits_;
  SpaceCounts counts_;
  std::size_t turn_{0};
  bool closed_{false};
};

}  // namespace datapath
