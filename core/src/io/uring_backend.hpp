// SPDX-License-Identifier: Apache-2.0
/// @file
/// The io_uring backend: one ring for each thread, the batches spread over them.
#pragma once

#include "io/backend.hpp"
#include "io/uring_ring.hpp"

#include <atomic>
#include <memory>
#include <vector>

namespace datapath {

class UringBackend final : public Backend {
 public:
  /// Throws DP_ERR_UNSUPPORTED with the reason and the remedy.
  explicit UringBackend(BackendOptions const& options);

  [[nodiscard]] std::string_view name() const noexcept override { return "uring"; }
  void submit(IoList pieces) override;
  [[nodiscard]] bool stop() override;
  [[nodiscard]] bool on_own_thread() const noexcept override;
  [[nodiscard]] std::uint64_t attempts_ended() const noexcept override;
  [[nodiscard]] std::uint64_t load() const noexcept override;
  void describe(JsonWriter& json) const override;

 private:
  [[nodiscard]] UringRing& least_loaded() noexcept;
  [[nodiscard]] std::uint64_t lost() const noexcept;

  std::vector<std::unique_ptr<UringRing>> rings_;
  std::atomic<std::size_t> turn_{0};
};

}  // namespace datapath
