// SPDX-License-Identifier: Apache-2.0
/// @file
/// Spill space over one or several directories: extents inside preallocated files, striped, each drive its own queue.
#pragma once

#include "io/engine.hpp"

#include <vector>

namespace datapath {

class Volume;

/// A range of a volume. The last reference gives the bytes back once I/O in flight on them has ended.
class Extent : public RefCounted {
 public:
  ~Extent() override;
  [[nodiscard]] std::uint64_t nbytes() const noexcept;
  /// Offsets count from the extent's start; a request past its end is DP_ERR_INVALID.
  [[nodiscard]] Ref<Ticket> read(std::span<dp_io_request const> requests, Owner owner);
  [[nodiscard]] Ref<Ticket> write(std::span<dp_io_request const> requests, Owner owner);
  void free();
};

struct VolumeOptions {
  std::uint64_t capacity{0};
  std::uint64_t segment_bytes{0};
  std::uint64_t stripe_bytes{0};
  std::uint64_t reserve_bytes{0};
  bool keep_files{false};
};

class Volume : public RefCounted {
 public:
  Volume(std::vector<std::string> directories, VolumeOptions options, Ref<Engine> engine);
  ~Volume() override;
  [[nodiscard]] Ref<Extent> allocate(std::uint64_t nbytes);
  void close();
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] dp_volume_stats stats() const;
};

}  // namespace datapath
