// SPDX-License-Identifier: Apache-2.0
#include "memory/pool_list.hpp"

#include "support/per_process.hpp"

#include <mutex>

namespace datapath {

namespace {

struct PoolList {
  std::mutex mutex;
  std::vector<Pool*> pools;  ///< Weak.
};

PerProcess<PoolList> list;

}  // namespace

std::vector<Ref<Pool>> live_pools()
{
  auto& all = list.get();
  std::vector<Ref<Pool>> live;
  std::lock_guard const lock{all.mutex};
  live.reserve(all.pools.size());
  for (auto* const pool : all.pools) {
    if (pool->retain_if_alive()) { live.push_back(Ref<Pool>::adopt(pool)); }
  }
  return live;
}

void list_pool(Pool* pool)
{
  auto& all = list.get();
  std::lock_guard const lock{all.mutex};
  all.pools.push_back(pool);
}

void unlist_pool(Pool const* pool) noexcept
{
  auto& all = list.get();
  std::lock_guard const lock{all.mutex};
  std::erase(all.pools, pool);
}

}  // namespace datapath
