// SPDX-License-Identifier: Apache-2.0
#include "streams/staging.hpp"

#include "support/error.hpp"

#include <string>

namespace datapath {

Staging::Staging(Ref<Device> device, Ref<Pool> pool, std::uint64_t chunk_bytes, std::uint32_t limit)
  : device_{std::move(device)}, pool_{std::move(pool)}, chunk_bytes_{chunk_bytes}, limit_{limit}
{}

Staging::Chunk* Staging::acquire()
{
  if (free_.empty() && chunks_.size() < limit_) {
    try {
      if (!pool_) {
        PoolOptions options;
        options.device = device_;
        pool_          = make_ref<Pool>(options);
      }
      auto chunk    = std::make_unique<Chunk>();
      chunk->buffer = pool_->allocate(chunk_bytes_ + alignment, alignment);
      free_.reserve(chunks_.size() + 1);
      chunks_.push_back(std::move(chunk));
      free_.push_back(chunks_.back().get());
      made_.fetch_add(1, std::memory_order_relaxed);
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
    .end();
}

}  // namespace datapath
