// SPDX-License-Identifier: Apache-2.0
#include "io/inflight.hpp"

#include <algorithm>
#include <chrono>

namespace datapath {

bool Inflight::enter(Token& token)
{
  std::lock_guard const lock{mutex_};
  if (shut_) { return false; }
  token = current_;
  ++counts_[token];
  return true;
}

void Inflight::leave(Token token)
{
  std::lock_guard const lock{mutex_};
  // Notified under the lock: the one who waits may destroy this as soon as it has it.
  if (--counts_[token] == 0 && waiters_ != 0) { changed_.notify_all(); }
}

bool Inflight::wait(std::unique_lock<std::mutex>& lock,
                    std::uint64_t timeout,
                    Progress const& progress,
                    std::function<bool()> const& reached)
{
  constexpr std::uint64_t longest = std::uint64_t{1} << 61U;
  auto const patience =
    std::chrono::nanoseconds{static_cast<std::int64_t>(std::min(timeout, longest))};
  ++waiters_;
  auto seen = progress();
  bool done = reached();
  while (!done) {
    auto const until = std::chrono::steady_clock::now() + patience;
    done             = changed_.wait_until(lock, until, reached);
    auto const now   = progress();
    if (!done && now == seen) { break; }
    seen = now;
  }
  --waiters_;
  return done;
}

bool Inflight::flush(std::uint64_t timeout, Progress const& progress)
{
  std::lock_guard const one{flushing_};
  std::unique_lock lock{mutex_};
  auto const earlier = current_;
  auto const free    = 1U - earlier;
  // Only an earlier flush that gave up leaves anything here.
  if (!wait(lock, timeout, progress, [&] { return counts_[free] == 0; })) { return false; }
  current_ = free;
  return wait(lock, timeout, progress, [&] { return counts_[earlier] == 0; });
}

bool Inflight::shut(std::uint64_t timeout, Progress const& progress)
{
  std::unique_lock lock{mutex_};
  shut_ = true;
  return wait(lock, timeout, progress, [&] { return counts_[0] + counts_[1] == 0; });
}

bool Inflight::is_shut() const
{
  std::lock_guard const lock{mutex_};
  return shut_;
}

std::uint64_t Inflight::count() const
{
  std::lock_guard const lock{mutex_};
  return counts_[0] + counts_[1];
}

}  // namespace datapath
