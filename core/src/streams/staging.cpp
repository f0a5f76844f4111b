// SPDX-License-Identifier: Apache-2.0
#include "streams/staging.hpp"

#include "support/error.hpp"

#include <string>

namespace datapath {

namespace {

/// All transfers together may stage this many times what one may; ahead of their streams, half of that.
constexpr std::uint32_t transfers_staged_at_once = 4;
constexpr std::uint32_t transfers_staged_ahead   = 2;

}  // namespace

Staging::Staging(Ref<Device> device,
                 Ref<Pool> pool,
                 std::uint64_t chunk_bytes,
                 std::uint32_t chunks_per_transfer)
  : device_{std::move(device)},
    pool_{std::move(pool)},
    chunk_bytes_{chunk_bytes},
    chunks_per_transfer_{chunks_per_transfer},
    limit_{chunks_per_transfer * transfers_staged_at_once}
{}

bool Staging::make()
{
  if (!pool_) {
    PoolOptions options;
    options.device = device_;
    pool_          = make_ref<Pool>(options);
  }
  auto chunk    = std::make_unique<Chunk>();
  chunk->buffer = pool_->try_allocate(chunk_bytes_ + alignment, alignment);
  if (!chunk->buffer) { return false; }
  free_.reserve(chunks_.size() + 1);
  chunks_.push_back(std::move(chunk));
  free_.push_back(chunks_.back().get());
  made_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

bool Staging::make_first() noexcept
{
  try {
    return make();
  } catch (...) {
    // For `acquire` to say.
    return true;
  }
}

Staging::Chunk* Staging::acquire()
{
  if (free_.empty() && chunks_.size() < limit_) {
    try {
      (void)make();
    } catch (...) {
      if (!chunks_.empty()) {
        // Those that there are will do; asking again for each piece would only cost time.
        limit_ = static_cast<std::uint32_t>(chunks_.size());
        return nullptr;
      }
      auto error    = current_error();
      error.message = "no staging chunk of " + std::to_string(chunk_bytes_) +
                      " bytes for a transfer over several hops: " + error.message;
      throw Error{std::move(error)};
    }
  }
  if (free_.empty()) { return nullptr; }
  auto* const chunk = free_.back();
  free_.pop_back();
  in_use_.fetch_add(1, std::memory_order_relaxed);
  return chunk;
}

bool Staging::may_acquire_ahead() const noexcept
{
  if (ahead_.load(std::memory_order_relaxed) >= chunks_per_transfer_ * transfers_staged_ahead) {
    return false;
  }
  auto const may_make = !exhausted_ && chunks_.size() < limit_;
  return (may_make ? limit_ - lost_ : usable()) >= needed_for_ahead() &&
         (may_make || !free_.empty());
}

Staging::Chunk* Staging::acquire_ahead()
{
  if (!may_acquire_ahead()) { return nullptr; }
  // Made now, while there is memory: what ready transfers are to find must not be a mere promise.
  while (free_.empty() || usable() < needed_for_ahead()) {
    if (exhausted_ || chunks_.size() >= limit_) { return nullptr; }
    try {
      exhausted_ = !make();
    } catch (...) {
      exhausted_ = true;
    }
  }
  auto* const chunk = acquire();
  ahead_.fetch_add(1, std::memory_order_relaxed);
  return chunk;
}

void Staging::no_longer_ahead(std::uint32_t count) noexcept
{ ahead_.fetch_sub(count, std::memory_order_relaxed); }

void Staging::lost() noexcept
{
  ++limit_;
  ++lost_;
}

void Staging::found() noexcept
{
  --limit_;
  --lost_;
}

void Staging::release(Chunk* chunk)
{
  free_.push_back(chunk);
  in_use_.fetch_sub(1, std::memory_order_relaxed);
}

void Staging::shut_down() noexcept
{
  free_.clear();
  chunks_.clear();
  pool_ = nullptr;
  made_.store(0, std::memory_order_relaxed);
}

void Staging::describe(JsonWriter& json) const
{
  json.object("staging")
    .field("chunk_bytes", chunk_bytes_)
    .field("chunks", made_.load(std::memory_order_relaxed))
    .field("in_use", in_use_.load(std::memory_order_relaxed))
    .field("ahead", ahead_.load(std::memory_order_relaxed))
    .end();
}

}  // namespace datapath
