// SPDX-License-Identifier: Apache-2.0
/// @file
/// Moves transfers through their lanes: admits them, issues their pieces, takes completions, ends them.
#pragma once

#include "streams/device_queue.hpp"
#include "streams/lane.hpp"
#include "streams/staging.hpp"
#include "streams/trace.hpp"
#include "streams/transfer.hpp"
#include "streams/workers.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace datapath {

struct ProgressOptions;

/// Belongs to the progress thread, but for what says that any thread may call it.
class Mover {
 public:
  Mover(Ref<Device> device, Progress& progress, ProgressOptions const& options);
  Mover(Mover const&)            = delete;
  Mover& operator=(Mover const&) = delete;

  /// Called once by the progress thread, before anything else of it.
  void adopt_thread() noexcept { device_->adopt_thread(); }

  // ---- mover_admit.cpp

  /// Takes a transfer in; its reference is held until it has ended.
  void admit(Ref<Transfer> transfer);
  void tickets_ended(Transfer& transfer);
  /// Moves on what waited for streams; true if anything did.
  bool poll_gates();
  /// Goes on with what waited for the first chunk's memory; true if there was any.
  bool poll_staging();
  /// Poisons what had to wait for its streams with that; true if there was any.
  bool poll_unpoisoned();

  // ---- mover_issue.cpp

  /// Starts all that lanes, credits and chunks allow; true if anything started.
  bool pump();

  // ---- mover_complete.cpp

  /// Takes completions of device work; true if there were any.
  bool poll_devices();
  void io_ended(TransferPiece& piece);
  void io_released(TransferPiece& piece);
  void copied(TransferPiece& piece);

  // ---- mover_end.cpp

  /// Fails every transfer that has not started; nothing waits for streams any more that need not.
  void give_up();

  /// Gives streams, threads and staging memory back; nothing may be in flight.
  void shut_down();

  /// Some work shows its end only to those who ask.
  [[nodiscard]] bool needs_polling() const noexcept;
  /// Nothing is in flight, not even memory that I/O may still touch.
  [[nodiscard]] bool empty() const noexcept { return live_.empty() && held_ == 0; }

  // ---- any thread

  [[nodiscard]] Lane& lane(LaneId id) noexcept { return *lanes_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] Lane const& lane(LaneId id) const noexcept
  { return *lanes_[static_cast<std::size_t>(id)]; }
  /// The lane's own stream, or 0 for a lane without one.
  [[nodiscard]] dp_stream stream(LaneId lane) const noexcept
  { return streams_[static_cast<std::size_t>(lane)]; }
  [[nodiscard]] Trace const& trace() const noexcept { return trace_; }
  void describe(JsonWriter& json) const;

 private:
  // mover_admit.cpp
  void gate(Transfer& transfer);
  void start(Transfer& transfer);
  [[nodiscard]] bool streams_passed(Transfer& transfer);
  void park_gated(Transfer& transfer);
  void let_through(Transfer& transfer);
  void push_piece(TransferPiece& piece);
  [[nodiscard]] bool may_read_ahead(Transfer const& transfer) const noexcept;
  [[nodiscard]] bool may_stage_ahead() const noexcept
  { return chunk_waiters_.empty() && staging_.may_acquire_ahead(); }

  // mover_issue.cpp
  bool pump(Lane& lane);
  bool make_piece(Lane& lane, Transfer& transfer);
  [[nodiscard]] Staging::Chunk* take_chunk(Lane& lane, Transfer& transfer);
  void issue(TransferPiece& piece, DeviceQueue* queue);
  void issue_device(TransferPiece& piece, DeviceQueue& queue);
  void issue_io(TransferPiece& piece);
  void issue_host(TransferPiece& piece);
  [[nodiscard]] std::uint64_t source_address(TransferPiece const& piece) const noexcept;
  [[nodiscard]] std::uint64_t destination_address(TransferPiece const& piece) const noexcept;

  // mover_complete.cpp
  void complete(TransferPiece& piece);
  void after_short_read(TransferPiece const& piece);
  void drop(TransferPiece& piece);
  void free_piece(TransferPiece& piece);
  void next_chunk_waiter();

  // mover_end.cpp
  void fail(Transfer& transfer, ErrorInfo error);
  void try_finish(Transfer& transfer);
  void finish(Transfer& transfer);
  [[nodiscard]] bool start_poison(Transfer& transfer);
  void end(Transfer& transfer);

  [[nodiscard]] DeviceLane* device_lane(LaneId id) noexcept
  { return device_lanes_[static_cast<std::size_t>(id)].get(); }
  [[nodiscard]] std::uint64_t chunk_bytes() const noexcept { return staging_.chunk_bytes(); }

  Ref<Device> device_;
  Progress& progress_;
  std::uint32_t chunks_per_transfer_;
  Staging staging_;
  Trace trace_;
  std::array<std::unique_ptr<Lane>, lane_count> lanes_;
  std::array<std::unique_ptr<DeviceLane>, lane_count> device_lanes_;
  std::array<dp_stream, lane_count> streams_{};
  std::vector<Ref<Transfer>> live_;
  std::vector<Ref<Transfer>> gated_;          ///< In order; their streams have not passed yet.
  std::vector<Ref<Transfer>> unpoisoned_;     ///< Failed before their streams have passed.
  std::vector<Ref<Transfer>> chunk_waiters_;  ///< Their next piece needs a chunk of others.
  bool given_up_{false};
  std::uint64_t held_{0};  ///< Pieces whose memory I/O may still touch.
  Workers copies_;
};

}  // namespace datapath
