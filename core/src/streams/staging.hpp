// SPDX-License-Identifier: Apache-2.0
/// @file
/// The pinned chunks that transfers over several hops pass through.
#pragma once

#include "memory/pool.hpp"
#include "support/json.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace datapath {

/// Belongs to the progress thread; only `describe` may be called from others.
class Staging {
 public:
  struct Chunk {
    Ref<Buffer> buffer;
    [[nodiscard]] std::uint64_t address() const noexcept
    { return reinterpret_cast<std::uint64_t>(buffer->data()); }
  };

  /// Room in front of the bytes, so that a chunk can be as misaligned as the file range it mirrors.
  static constexpr std::uint64_t alignment = 4096;

  /// A pool of its own on `device`, made when the first chunk is needed, unless one is given.
  Staging(Ref<Device> device, Ref<Pool> pool, std::uint64_t chunk_bytes, std::uint32_t limit);

  [[nodiscard]] std::uint64_t chunk_bytes() const noexcept { return chunk_bytes_; }
  /// A free chunk, or nullptr while all that there may be are in use. Throws if there is not even one.
  [[nodiscard]] Chunk* acquire();
  void release(Chunk* chunk);
  /// I/O may touch the chunk for ever: another may be made in its place.
  void lost() noexcept { ++limit_; }
  void found() noexcept { --limit_; }
  /// Gives all chunks back to the pool; none may be in use.
  void shut_down() noexcept;
  void describe(JsonWriter& json) const;

 private:
  Ref<Device> device_;
  Ref<Pool> pool_;
  std::uint64_t chunk_bytes_;
  std::uint32_t limit_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<Chunk*> free_;
  std::atomic<std::uint32_t> made_{0};
  std::atomic<std::uint32_t> in_use_{0};
};

}  // namespace datapath
