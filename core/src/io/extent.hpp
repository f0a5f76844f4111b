// SPDX-License-Identifier: Apache-2.0
/// @file
/// A range of a volume, in one piece or striped over its drives.
#pragma once

#include "io/io_batch.hpp"
#include "io/volume_space.hpp"

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace datapath {

class Volume;

/// The last reference gives the bytes back once I/O in flight on them has ended; `free` does so
/// sooner.
class Extent final : public IoSubject {
 public:
  // Construction is the volume's (Volume::allocate).
  ~Extent() override;

  [[nodiscard]] std::uint64_t nbytes() const noexcept { return nbytes_; }
  /// Offsets count from the extent's start; a request past its end is DP_ERR_INVALID.
  [[nodiscard]] Ref<Ticket> read(std::span<dp_io_request const> requests, Owner owner);
  [[nodiscard]] Ref<Ticket> write(std::span<dp_io_request const> requests, Owner owner);
  /// The bytes go back now, or when I/O in flight has ended; later I/O is DP_ERR_CLOSED.
  void free();

  /// Every drive that it lies on takes device pointers (cufile).
  [[nodiscard]] bool takes_device_pointers() const noexcept;

  void settled(IoOp op, std::uint64_t nbytes) noexcept override;

 protected:
  void last_reference_gone() const noexcept override;

 private:
  friend class Volume;
  Extent(Ref<Volume> volume, std::uint64_t nbytes, std::vector<ExtentRun> runs);

  [[nodiscard]] Ref<Ticket> submit(IoOp op, std::span<dp_io_request const> requests, Owner owner);
  void check_range(dp_io_request const& request) const;
  void cut_over_runs(std::vector<IoPiece>& pieces, dp_io_request const& request, IoOp op) const;
  [[nodiscard]] bool begin() noexcept;
  void end() noexcept;
  void give_back() noexcept;

  /// Batches in flight, and a bit that says that the extent is freed.
  static constexpr std::uint64_t freed_bit = std::uint64_t{1} << 63U;

  Ref<Volume> volume_;
  std::uint64_t nbytes_;
  std::vector<ExtentRun> runs_;
  std::atomic<std::uint64_t> state_{0};
};

}  // namespace datapath
