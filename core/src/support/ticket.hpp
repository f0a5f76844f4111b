// SPDX-License-Identifier: Apache-2.0
/// @file
/// Work in flight: an end that is waited for by hosts, streams and other work, and carries its error.
#pragma once

#include "support/error.hpp"
#include "support/fork.hpp"
#include "support/ref.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

namespace datapath {

class Device;

/// States only move forward: open (a host hop is left) → device (only an event is left) → ended.
///
/// A ticket of disk I/O never has a device state. A ticket of device work gets its event when the last
/// copy is enqueued; the scheduler's thread ends it when that event has passed.
class Ticket : public RefCounted {
 public:
  /// `writes_disk`: for `awaits_write`.
  explicit Ticket(bool writes_disk = false) : writes_disk_{writes_disk} {}

  // ---- for the one who does the work

  /// Only work behind `event` on a stream of `device` is left. The device owns the event; it must stay
  /// valid until the ticket ends.
  void enter_device(Device* device, std::uint64_t event);
  void complete(std::uint64_t nbytes);
  void fail(ErrorInfo error);
  /// After the end: runs `release` at once, or when the last caller of `with_event` is through.
  void when_event_unused(std::function<void()> release);

  // ---- for those who wait

  /// Throws DP_ERR_FORKED: what would end the ticket runs in the parent.
  void check_usable() const { fork_.check("the ticket"); }
  /// DP_OK, DP_PENDING or the error's status; never blocks.
  [[nodiscard]] dp_status state() const;
  [[nodiscard]] bool ended() const { return state() != DP_PENDING; }
  /// Its end comes after a write to a disk, its own or one that it follows, which may not have ended.
  [[nodiscard]] bool awaits_write() const { return writes_disk_.load() && !ended(); }
  /// Waits at most `timeout` nanoseconds (UINT64_MAX: for ever). False: still pending.
  [[nodiscard]] bool wait(std::uint64_t timeout) const;
  /// Waits until the ticket has ended or only device work is left. False: timed out.
  [[nodiscard]] bool wait_host_part(std::uint64_t timeout) const;
  /// Only for an ended ticket: the bytes, or throws the error.
  [[nodiscard]] std::uint64_t bytes() const;
  [[nodiscard]] std::optional<ErrorInfo> error() const;
  /// In the device state, runs `body(device, event)` with the event held valid; false in another state.
  /// No lock is held meanwhile: the driver may block where a queue is full, and the ticket end.
  bool with_event(std::function<void(Device&, std::uint64_t)> const& body) const;

  /// Runs once at the end, on the ending thread with no lock held; at once if it has ended.
  void on_end(std::function<void(Ticket const&)> continuation);

 protected:
  /// The writes that it followed have ended, and it has none of its own.
  void follows_no_write() noexcept { writes_disk_.store(false); }

 private:
  enum class Phase : std::uint8_t { open, device, ended };
  void end(std::optional<ErrorInfo> error, std::uint64_t nbytes);
  void event_used() const noexcept;

  ForkGuard fork_;
  std::atomic<bool> writes_disk_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Phase phase_{Phase::open};
  Device* device_{nullptr};
  std::uint64_t event_{0};
  mutable std::uint32_t event_users_{0};
  mutable std::function<void()> release_event_;  ///< Waits for the last user.
  std::uint64_t nbytes_{0};
  std::optional<ErrorInfo> error_;
  std::vector<std::function<void(Ticket const&)>> continuations_;
};

}  // namespace datapath
