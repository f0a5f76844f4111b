// SPDX-License-Identifier: Apache-2.0
/// @file
/// The I/O engine: owns one backend, opens files, hands out tickets.
#pragma once

#include "support/fork.hpp"
#include "support/owner.hpp"
#include "support/ref.hpp"
#include "support/ticket.hpp"

#include <datapath/datapath.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace datapath {

class Backend;  // io/backend.hpp
class File;     // io/file.hpp

struct EngineOptions {
  std::string backend;  ///< Empty: setting io.backend.
  std::string faults;   ///< Empty: setting io.faults.
  std::uint32_t depth{0};
  std::uint32_t threads{0};
  std::int32_t direct{0};
  std::uint64_t max_inflight_bytes{0};
};

class Engine : public RefCounted {
 public:
  explicit Engine(EngineOptions options);
  ~Engine() override;

  [[nodiscard]] Ref<File> open(std::string const& path, std::string_view mode);
  void close();
  [[nodiscard]] std::string describe() const;
  /// Throws DP_ERR_FORKED or DP_ERR_CLOSED.
  void check_usable() const;
  [[nodiscard]] Backend& backend() const noexcept { return *backend_; }

  /// One engine for those who name none; made at first use, again after a fork.
  [[nodiscard]] static Ref<Engine> shared();

 private:
  ForkGuard fork_;
  EngineOptions options_;
  std::unique_ptr<Backend> backend_;
};

}  // namespace datapath
