// SPDX-License-Identifier: Apache-2.0
#include "streams/live_schedulers.hpp"

#include "streams/progress.hpp"
#include "support/describe.hpp"
#include "support/per_process.hpp"

#include <cstdlib>
#include <mutex>
#include <vector>

namespace datapath {

namespace {

constexpr std::uint64_t patience         = 1'000'000'000;
constexpr std::uint64_t retired_patience = 100'000'000;

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
      // One that nobody uses any more is about to let go of everything in good order.
      if (progress->is_retired() && progress->wait_exited(retired_patience)) { continue; }
      progress->abandon(patience);
      known.abandoned.push_back(std::move(progress));
    }
  }
}

void describe_streams(JsonWriter& json, bool)
{
  std::vector<std::shared_ptr<Progress>> live;
  {
    auto& known = registry.get();
    std::lock_guard const lock{known.mutex};
    for (auto const& thread : known.threads) {
      if (auto progress = thread.lock()) { live.push_back(std::move(progress)); }
    }
  }
  json.array("schedulers");
  for (auto const& progress : live) {
    json.object();
    progress->describe(json);
    json.end();
  }
  json.end();
}

DescribeRegistration const registered{"streams", describe_streams};

}  // namespace

void enlist(std::shared_ptr<Progress> const& progress)
{
  static int const at_exit = std::atexit(stop_all);
  (void)at_exit;
  auto& known = registry.get();
  std::lock_guard const lock{known.mutex};
  std::erase_if(known.threads, [](auto const& thread) { return thread.expired(); });
  known.threads.push_back(progress);
}

}  // namespace datapath
