// SPDX-License-Identifier: Apache-2.0
/// @file
/// Spill space over one or several directories: extents inside preallocated files, striped, each
/// drive with its own queue.
#pragma once

#include "io/engine.hpp"
#include "io/extent.hpp"
#include "io/volume_space.hpp"
#include "support/fork.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace datapath {

/// Zero means the setting's value.
struct VolumeOptions {
  std::uint64_t capacity{0};  ///< Not optional.
  std::uint64_t segment_bytes{0};
  std::uint64_t stripe_bytes{0};
  std::uint64_t reserve_bytes{0};
  bool keep_files{false};
};

class Volume final : public IoDoor {
 public:
  /// `engine`: nothing for one of its own, which closes with the volume.
  Volume(std::vector<std::string> directories, VolumeOptions const& options, Ref<Engine> engine);
  ~Volume() override;

  /// Throws DP_ERR_NO_SPACE with what was asked for, what is free, and the remedy.
  [[nodiscard]] Ref<Extent> allocate(std::uint64_t nbytes);
  /// Ends what is in flight, then removes the files; extents that live on refuse I/O. Throws
  /// DP_ERR_IO (ETIMEDOUT) when requests never end.
  void close();
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] dp_volume_stats stats() const;

  // ---- for its extents

  /// Brackets a batch. Throws DP_ERR_FORKED or DP_ERR_CLOSED.
  [[nodiscard]] IoEntry enter();
  /// What was entered, if no batch came of it.
  void leave(IoEntry const& entry) noexcept;
  void left(Inflight::Token token) noexcept override { inflight_.leave(token); }
  void count_bytes(IoOp op, std::uint64_t nbytes) noexcept;
  void check_not_inherited() const { fork_.check("the volume"); }
  [[nodiscard]] bool inherited() const noexcept { return fork_.inherited(); }
  [[nodiscard]] Engine& engine() const noexcept { return *engine_; }
  [[nodiscard]] VolumeSpace& space() const noexcept { return *space_; }

 protected:
  void last_reference_gone() const noexcept override;

 private:
  void warn_of_directories(std::vector<std::unique_ptr<Drive>> const& drives);

  ForkGuard fork_;
  bool own_engine_;
  bool keep_files_;
  Ref<Engine> engine_;
  std::vector<std::string> warnings_;
  std::unique_ptr<VolumeSpace> space_;
  Inflight inflight_;
  std::atomic<std::uint64_t> bytes_read_{0};
  std::atomic<std::uint64_t> bytes_written_{0};
};

}  // namespace datapath
