// SPDX-License-Identifier: Apache-2.0
/// @file
/// PinnedPool: one reserved address range, backed and registered in pieces, exact sizes at 4 KiB grain.
#pragma once

#include "memory/buffer.hpp"
#include "support/fork.hpp"

#include <memory>

namespace datapath {

struct PoolOptions {
  std::uint64_t budget{0};
  std::uint64_t piece_bytes{0};
  std::int32_t huge_pages{0};
  std::int32_t numa_node{-1};  ///< -1: the device's node, else no binding.
  std::int32_t lock{0};
  Ref<Device> device;
};

class Pool : public RefCounted {
 public:
  explicit Pool(PoolOptions options);
  ~Pool() override;

  [[nodiscard]] Ref<Buffer> allocate(std::uint64_t nbytes, std::uint64_t alignment = 0);
  void reserve(std::uint64_t nbytes);
  std::uint64_t trim();
  [[nodiscard]] dp_pool_stats stats() const;
  void close();
};

/// dp_register.
[[nodiscard]] Ref<Buffer> register_memory(void* pointer, std::uint64_t nbytes, bool read_only, bool required, Ref<Device> device, dp_owner owner);

}  // namespace datapath
