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
///
/// Chunks that are filled *ahead*, for transfers whose streams have not passed, may be held for long, and
/// the streams may wait for transfers that need chunks. So they are at most half of all, and none is
/// given unless as many as one transfer uses are there besides, which only ready transfers take.
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
  /// All transfers together have a few times the chunks of one.
  Staging(Ref<Device> device,
          Ref<Pool> pool,
          std::uint64_t chunk_bytes,
          std::uint32_t chunks_per_transfer);

  [[nodiscard]] std::uint64_t chunk_bytes() const noexcept { return chunk_bytes_; }
  /// A free chunk, or nullptr while all that there may be are in use, or memory for another is used by work
  /// in flight. Throws if there is not even one.
  [[nodiscard]] Chunk* acquire();
  /// There is no chunk yet, and may be none while its memory is used by work in flight.
  [[nodiscard]] bool has_none() const noexcept { return chunks_.empty(); }
  /// Whether `acquire` may now be asked again for the first chunk.
  [[nodiscard]] bool make_first() noexcept;
  /// As `acquire`, to be filled ahead; nullptr too where ready transfers need them all. Never throws for
  /// want of memory.
  [[nodiscard]] Chunk* acquire_ahead();
  /// Whether `acquire_ahead` is worth a try.
  [[nodiscard]] bool may_acquire_ahead() const noexcept;
  /// So many chunks that were acquired ahead are a ready transfer's now, or were released.
  void no_longer_ahead(std::uint32_t count) noexcept;
  void release(Chunk* chunk);
  /// I/O may touch the chunk for ever: another may be made in its place.
  void lost() noexcept;
  void found() noexcept;
  /// Gives all chunks back to the pool; none may be in use.
  void shut_down() noexcept;
  void describe(JsonWriter& json) const;

 private:
  /// False where memory would have to be waited for: what uses it may be a stream that waits for one of
  /// the transfers. Throws where there is none.
  bool make();
  [[nodiscard]] std::size_t usable() const noexcept { return chunks_.size() - lost_; }
  /// How many must be usable for one more to be acquired ahead.
  [[nodiscard]] std::size_t needed_for_ahead() const noexcept
  { return ahead_.load(std::memory_order_relaxed) + 1 + chunks_per_transfer_; }

  Ref<Device> device_;
  Ref<Pool> pool_;
  std::uint64_t chunk_bytes_;
  std::uint32_t chunks_per_transfer_;
  std::uint32_t limit_;
  std::uint32_t lost_{0};
  bool exhausted_{
    false};  ///< No memory was left for another: nothing more is acquired ahead for it.
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<Chunk*> free_;
  std::atomic<std::uint32_t> made_{0};
  std::atomic<std::uint32_t> in_use_{0};
  std::atomic<std::uint32_t> ahead_{0};
};

}  // namespace datapath
