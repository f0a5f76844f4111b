// SPDX-License-Identifier: Apache-2.0
#include "streams/exit_guard.hpp"

#include "streams/progress.hpp"
#include "support/per_process.hpp"

#include <cstdlib>
#include <mutex>
#include <vector>

namespace datapath {

namespace {

constexpr std::uint64_t patience = 1'000'000'000;

struct Registry {
  std::mutex mutex;
  std::vector<std::weak_ptr<Progress>> threads;
  std::vector<std::shared_ptr<Progress>>
    abandoned;  // never destroyed: their threads may still look
};

constinit PerProcess<Registry> registry;

void stop_all()
{
  auto& known = registry.get();
  std::lock_guard const lock{known.mutex};
  for (auto const& thread : known.threads) {
    if (auto progress = thread.lock()) {
      progress->abandon(patience);
      known.abandoned.push_back(std::move(progress));
    }
  }
}

}  // namespace

void stop_at_exit(std::shared_ptr<Progress> const& progress)
{
  static int const registered = std::atexit(stop_all);
  (void)registered;
  auto& known = registry.get();
  std::lock_guard const lock{known.mutex};
  std::erase_if(known.threads, [](auto const& thread) { return thread.expired(); });
  known.threads.push_back(progress);
}

}  // namespace datapath
