// SPDX-License-Identifier: Apache-2.0
/// @file
/// What moves bytes between files and memory. A backend makes single attempts; cutting, retries and
/// tickets are above it (cut.hpp, io_batch.hpp), so that a backend may wrap another one.
#pragma once

#include "io/io_piece.hpp"
#include "support/json.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace datapath {

struct BackendOptions {
  std::uint32_t depth{128};
  std::uint32_t threads{4};
  std::uint64_t max_inflight_bytes{256ULL << 20U};
};

class Backend {
 public:
  Backend()                          = default;
  Backend(Backend const&)            = delete;
  Backend& operator=(Backend const&) = delete;
  virtual ~Backend()                 = default;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  /// Takes the pieces over. Each gets one attempt, which ends in one call of `attempt_ended` on a
  /// thread of the backend. Never blocks on I/O; more than the depth or the byte cap allows waits
  /// in a queue. Called from any thread, also from within `attempt_ended`.
  virtual void submit(IoList pieces) = 0;

  /// Ends the threads, once nothing is submitted any more. False: some attempt never ended, a
  /// thread is stuck in it; the backend must then be leaked.
  [[nodiscard]] virtual bool stop() = 0;

  /// True on one of the backend's own threads, which cannot join themselves.
  [[nodiscard]] virtual bool on_own_thread() const noexcept = 0;

  /// Attempts that have ended, ever; tells slow from stuck.
  [[nodiscard]] virtual std::uint64_t attempts_ended() const noexcept = 0;

  /// Pieces that were submitted and have not ended.
  [[nodiscard]] virtual std::uint64_t load() const noexcept = 0;

  /// Device pointers are served too.
  [[nodiscard]] virtual bool takes_device_pointers() const noexcept { return false; }

  /// Before the descriptors of a file are closed.
  virtual void forget(Descriptors const&) noexcept {}

  /// Writes fields into an open object.
  virtual void describe(JsonWriter& json) const = 0;
};

/// Reports the end of an attempt: bytes moved, or a negated errno. The piece is gone or submitted
/// again when this returns. Called with no lock held.
void attempt_ended(IoPiece& piece, std::int64_t result) noexcept;

}  // namespace datapath
