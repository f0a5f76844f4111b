// SPDX-License-Identifier: Apache-2.0
/// @file
/// An open file: what is asked of it in one call becomes one ticket.
#pragma once

#include "io/engine.hpp"
#include "io/io_batch.hpp"
#include "io/open_mode.hpp"

#include <memory>
#include <span>
#include <string>

namespace datapath {

class File final : public IoDoor {
 public:
  // Construction is the engine's (Engine::open).
  ~File() override;

  /// Copies the requests. See dp_file_read and dp_file_write.
  [[nodiscard]] Ref<Ticket> read(std::span<dp_io_request const> requests, Owner owner);
  [[nodiscard]] Ref<Ticket> write(std::span<dp_io_request const> requests, Owner owner);
  [[nodiscard]] std::uint64_t size() const;
  /// After every write submitted before it.
  void truncate(std::uint64_t nbytes);
  void sync();
  /// Ends what is in flight, then refuses more. Throws DP_ERR_IO (ETIMEDOUT) when requests never
  /// end.
  void close();
  [[nodiscard]] std::string const& path() const noexcept { return path_; }
  /// The engine takes device pointers (cufile).
  [[nodiscard]] bool takes_device_pointers() const noexcept;
  /// Why requests do not go around the page cache; empty if aligned ones do.
  [[nodiscard]] std::string const& direct_reason() const noexcept { return direct_reason_; }

  void left(Inflight::Token token) noexcept override;

 protected:
  void last_reference_gone() const noexcept override;

 private:
  friend class Engine;
  File(Ref<Engine> engine, std::string const& path, std::string_view mode);

  [[nodiscard]] Ref<Ticket> submit(IoOp op, std::span<dp_io_request const> requests, Owner owner);
  /// Throws DP_ERR_FORKED or DP_ERR_CLOSED.
  void check_usable() const;
  void flush(char const* what);

  Ref<Engine> engine_;
  std::string path_;
  OpenMode mode_;
  std::string direct_reason_;
  std::unique_ptr<Descriptors> descriptors_;
  mutable Inflight inflight_;
  std::mutex closing_;
  mutable Inflight calls_;  ///< Calls on the descriptor itself, which closing must not pull away.
};

}  // namespace datapath
