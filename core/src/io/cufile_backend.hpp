// SPDX-License-Identifier: Apache-2.0
/// @file
/// The cuFile backend: device memory by synchronous cuFile calls on a pool of threads, host memory
/// by pread and pwrite on the same threads.
#pragma once

#include "io/threads_backend.hpp"
#include "shim/cuda_types.hpp"
#include "shim/cufile.hpp"

#include <map>
#include <mutex>

namespace datapath {

class CufileBackend final : public ThreadsBackend {
 public:
  /// Throws DP_ERR_UNSUPPORTED with the reason and the remedy.
  explicit CufileBackend(BackendOptions const& options);
  ~CufileBackend() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "cufile"; }
  [[nodiscard]] bool takes_device_pointers() const noexcept override { return true; }
  void forget(Descriptors const& file) noexcept override;
  void describe(JsonWriter& json) const override;

 protected:
  [[nodiscard]] std::int64_t attempt(IoPiece const& piece) noexcept override;

 private:
  [[nodiscard]] cuda::Context context_of(int ordinal);
  [[nodiscard]] cufile::Handle handle_of(Descriptors const& file);
  [[nodiscard]] std::int64_t attempt_on_device(IoPiece const& piece);

  cufile::Library const& library_;
  std::mutex mutex_;
  std::map<Descriptors const*, cufile::Handle> handles_;
  std::map<int, cuda::Context> contexts_;  ///< Primary ones, by ordinal.
};

}  // namespace datapath
