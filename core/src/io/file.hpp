// SPDX-License-Identifier: Apache-2.0
/// @file
/// An open file: what is asked of it in one call becomes one ticket.
#pragma once

#include "io/engine.hpp"

namespace datapath {

class File : public RefCounted {
 public:
  // Construction is the engine's (Engine::open).
  ~File() override;

  /// Host memory only. Copies the requests. See dp_file_read and dp_file_write.
  [[nodiscard]] Ref<Ticket> read(std::span<dp_io_request const> requests, Owner owner);
  [[nodiscard]] Ref<Ticket> write(std::span<dp_io_request const> requests, Owner owner);
  [[nodiscard]] std::uint64_t size() const;
  void truncate(std::uint64_t nbytes);
  void sync();
  void close();
  [[nodiscard]] std::string const& path() const noexcept { return path_; }

 private:
  friend class Engine;
  File(Ref<Engine> engine, std::string path, std::string_view mode);

  Ref<Engine> engine_;
  std::string path_;
};

}  // namespace datapath
