// SPDX-License-Identifier: Apache-2.0
/// @file
/// The I/O engine: owns one backend, opens files, hands out tickets.
#pragma once

#include "io/backend.hpp"
#include "io/descriptors.hpp"
#include "io/inflight.hpp"
#include "support/fork.hpp"
#include "support/owner.hpp"
#include "support/ref.hpp"
#include "support/ticket.hpp"

#include <datapath/datapath.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace datapath {

class FaultPlan;  // io/fault_plan.hpp
class File;       // io/file.hpp

/// Zero and empty mean the setting's value.
struct EngineOptions {
  std::string backend;
  std::string faults;
  std::uint32_t depth{0};
  std::uint32_t threads{0};
  std::int32_t direct{0};  ///< 1 required, -1 never.
  std::uint64_t max_inflight_bytes{0};
};

class Engine : public RefCounted {
 public:
  explicit Engine(EngineOptions const& options);
  ~Engine() override;

  [[nodiscard]] Ref<File> open(std::string const& path, std::string_view mode);
  /// Ends what is in flight, then refuses more. Throws DP_ERR_IO (ETIMEDOUT) when requests never
  /// end.
  void close();
  [[nodiscard]] std::string describe() const;
  /// Throws DP_ERR_FORKED or DP_ERR_CLOSED.
  void check_usable() const;
  [[nodiscard]] Backend& backend() const noexcept { return *backend_; }
  /// A backend of the same kind with queues and threads of its own, so that drive 1 does not wait
  /// for drive 0, whose backend is the first. They end with this engine.
  [[nodiscard]] Backend& backend_for_drive(std::size_t drive);

  [[nodiscard]] std::uint64_t chunk_bytes() const noexcept { return chunk_bytes_; }
  [[nodiscard]] DirectMode direct_mode() const noexcept { return direct_; }
  [[nodiscard]] std::uint64_t close_timeout() const noexcept { return close_timeout_; }
  [[nodiscard]] bool inherited() const noexcept { return fork_.inherited(); }
  /// Attempts that have ended on any of its backends.
  [[nodiscard]] std::uint64_t progress() const;

  /// Brackets a batch. Throws DP_ERR_CLOSED.
  [[nodiscard]] Inflight::Token enter();
  void leave(Inflight::Token token) noexcept { inflight_.leave(token); }

  /// One engine for those who name none; made at first use, again after a fork or a close.
  [[nodiscard]] static Ref<Engine> shared();

 protected:
  void last_reference_gone() const noexcept override;

 private:
  [[nodiscard]] std::unique_ptr<Backend> make_backend(std::vector<std::string>& reasons) const;
  template <class Body>
  void for_each_backend(Body body);

  ForkGuard fork_;
  std::string requested_;
  BackendOptions backend_options_;
  DirectMode direct_{DirectMode::automatic};
  std::uint64_t chunk_bytes_{0};
  std::uint64_t close_timeout_{0};
  std::shared_ptr<FaultPlan> faults_;
  std::vector<std::string> reasons_;  ///< Why a faster backend does not serve.
  std::unique_ptr<Backend> backend_;
  mutable std::mutex siblings_mutex_;
  std::vector<std::unique_ptr<Backend>> siblings_;  ///< Of drive 1 and up.
  Inflight inflight_;
};

}  // namespace datapath
