// SPDX-License-Identifier: Apache-2.0
/// @file
/// PinnedPool: one reserved address range, backed and registered in pieces, exact sizes at 4 KiB
/// grain.
///
/// Every allocation lies in one piece, since the driver refuses a single copy over two. Free memory
/// is used first; then free pieces are exchanged for one that is large enough, or the pool grows by
/// a new one; then memory is waited for whose last work has not ended.
#pragma once

#include "memory/backing.hpp"
#include "memory/buffer.hpp"
#include "memory/free_ranges.hpp"
#include "memory/uses.hpp"
#include "support/fork.hpp"

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

namespace datapath {

struct PoolOptions {
  std::uint64_t budget{0};       ///< 0: setting memory.budget, else what is available.
  std::uint64_t piece_bytes{0};  ///< What it grows by; 0: up to the setting's, with its size.
  std::int32_t huge_pages{0};
  std::int32_t numa_node{-1};  ///< -1: the device's node, else no binding.
  std::int32_t lock{0};
  Ref<Device>
    device;  ///< Named by the caller: it must pin. Nothing: CUDA's default, else plain memory.
};

class Pool : public RefCounted {
 public:
  explicit Pool(PoolOptions options);
  ~Pool() override;

  [[nodiscard]] Ref<Buffer> allocate(std::uint64_t nbytes, std::uint64_t alignment = 0);
  /// As `allocate`, but nullptr where that would wait for work in flight.
  [[nodiscard]] Ref<Buffer> try_allocate(std::uint64_t nbytes, std::uint64_t alignment = 0);
  /// Free memory for `nbytes` in all; what is missing becomes one piece.
  void reserve(std::uint64_t nbytes);
  /// Gives back pieces that nothing uses; returns their bytes.
  std::uint64_t trim();
  [[nodiscard]] dp_pool_stats stats();
  void close();

  [[nodiscard]] Device* device() const noexcept { return options_.device.get(); }
  /// Throws if the books do not add up: every backed byte is free, held or pending, and no free
  /// neighbours are apart. For tests.
  void check_invariants();

 protected:
  void last_reference_gone() const noexcept override;

 private:
  friend class PoolBuffer;
  struct Pending {
    FreeRanges::Range range;
    PendingUses uses;
    bool lost{false};  ///< Its device failed: never reused.
  };
  using Books = std::unique_lock<std::mutex>;

  // ---- pool.cpp
  void check_usable() const;
  [[nodiscard]] Ref<Buffer> allocate(std::uint64_t nbytes, std::uint64_t alignment, bool may_wait);
  /// Nothing where it may not wait and would have to.
  [[nodiscard]] std::optional<std::uint64_t> obtain(std::uint64_t nbytes,
                                                    std::uint64_t alignment,
                                                    bool may_wait);
  [[nodiscard]] Ref<Buffer> make_buffer(std::uint64_t address,
                                        std::uint64_t nbytes,
                                        std::uint64_t rounded);
  [[noreturn]] void fail_budget(std::uint64_t nbytes) const;

  // ---- pool_return.cpp: the way back
  void give_back(FreeRanges::Range range, std::uint64_t nbytes, PendingUses uses) noexcept;
  void insert_free(FreeRanges::Range range);
  /// Asks at most `most` of the oldest; true if memory came back.
  bool poll_pending(std::size_t most);
  enum class Returned : std::uint8_t { perhaps, never, not_yet };
  /// `never` if there is nothing to wait for, and nothing came back since `seen` was read; `not_yet` where it
  /// may not wait.
  [[nodiscard]] Returned wait_for_oldest(std::uint64_t seen, bool may_wait);
  /// True once nothing is pending any more, or only what never will pass.
  bool settle();
  void give_back_when_settled() noexcept;
  [[nodiscard]] bool has_lost() const noexcept;

  // ---- pool_growth.cpp: what is backed; with growth_mutex_ held
  [[nodiscard]] std::optional<std::uint64_t> obtain_by_growth(std::uint64_t nbytes,
                                                              std::uint64_t alignment);
  /// Addresses for a piece of `nbytes` or, within `most`, of what the pool grows by.
  [[nodiscard]] std::optional<Piece> plan_piece(std::uint64_t nbytes,
                                                std::uint64_t alignment,
                                                std::uint64_t most);
  [[nodiscard]] std::optional<Piece> take_addresses(std::uint64_t nbytes, std::uint64_t alignment);
  /// Backs the piece; all of it is free then but the first `taken` bytes.
  void grow(Books& books, Piece piece, std::uint64_t taken);
  /// Backed bytes that may be added: by the budget, and by what the system has.
  [[nodiscard]] std::uint64_t room() const;
  [[nodiscard]] bool is_free(Piece const& piece) const;
  [[nodiscard]] std::uint64_t free_pieces_bytes() const;
  /// Gives back free pieces until `nbytes` are back or none is left.
  std::uint64_t unback_free_pieces(Books& books, std::uint64_t nbytes);

  ForkGuard fork_;
  PoolOptions options_;
  BackingOptions backing_;
  std::string reason_;  ///< Why there is no device.
  std::uint64_t budget_{0};
  std::uint64_t piece_bytes_{0};
  bool fixed_pieces_{false};
  std::byte* addresses_{nullptr};
  std::uint64_t address_bytes_{0};
  FreeRanges::Range usable_{0, 0};  ///< Of the addresses; behind it lies a page for zero bytes.

  /// Held by those who change what is backed; taken before `mutex_`.
  std::mutex growth_mutex_;
  mutable std::mutex mutex_;
  std::condition_variable returned_;
  std::map<std::uint64_t, Piece> pieces_;  ///< By start.
  std::set<std::string> reasons_;          ///< Of unpinned pieces; buffers point into it.
  FreeRanges free_;                        ///< Backed and unused; joined within pieces only.
  FreeRanges unbacked_;
  std::deque<Pending> pending_;
  std::uint64_t returns_{0};  ///< Ranges that ever became free again.
  std::size_t waiting_{0};    ///< Pending ranges that some thread waits for, outside `pending_`.
  dp_pool_stats counts_{};
  bool closed_{false};
  bool reaping_{false};
};

}  // namespace datapath
