// SPDX-License-Identifier: Apache-2.0
#include "thread_pool.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

namespace pytorch_direct {
namespace {

struct Job {
  std::function<void(std::int64_t)> const* body;
  std::int64_t chunks;
  std::atomic<std::int64_t> next{0};
  int places  = 0;  ///< Workers that may still join; guarded by the pool's mutex.
  int running = 0;  ///< Workers that are in it; guarded by the pool's mutex.

  void work()
  {
    for (auto chunk = next.fetch_add(1, std::memory_order_relaxed); chunk < chunks;
         chunk      = next.fetch_add(1, std::memory_order_relaxed)) {
      (*body)(chunk);
    }
  }
};

class Pool {
 public:
  void run(std::int64_t chunks, int helpers, std::function<void(std::int64_t)> const& body)
  {
    auto const job = std::make_shared<Job>();
    job->body      = &body;
    job->chunks    = chunks;
    {
      std::lock_guard const lock{mutex_};
      helpers     = std::min(helpers, grow(helpers));
      job->places = helpers;
      jobs_.push_back(job);
    }
    for (int i = 0; i < helpers; ++i) { wake_.notify_one(); }
    job->work();
    std::unique_lock lock{mutex_};
    std::erase(jobs_, job);
    ended_.wait(lock, [&] { return job->running == 0; });
  }

 private:
  /// Returns how many workers there are; fewer than wanted where the system gives no more threads.
  int grow(int wanted)
  {
    while (workers_ < wanted) {
      try {
        std::thread{[this] { serve(); }}.detach();
      } catch (std::system_error const&) {
        break;
      }
      ++workers_;
    }
    return workers_;
  }

  [[noreturn]] void serve()
  {
    std::unique_lock lock{mutex_};
    for (;;) {
      // Found once: between two looks the last chunk may be taken, which needs no lock.
      std::shared_ptr<Job> job;
      wake_.wait(lock, [&] {
        job = joinable();
        return job != nullptr;
      });
      --job->places;
      ++job->running;
      lock.unlock();
      job->work();
      lock.lock();
      if (--job->running == 0) { ended_.notify_all(); }
    }
  }

  std::shared_ptr<Job> joinable() const
  {
    for (auto const& job : jobs_) {
      if (job->places > 0 && job->next.load(std::memory_order_relaxed) < job->chunks) {
        return job;
      }
    }
    return nullptr;
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable ended_;
  std::deque<std::shared_ptr<Job>> jobs_;
  int workers_ = 0;
};

std::atomic<Pool*> current{nullptr};

/// A forked child has none of its parent's threads, so it makes a pool of its own. The parent's is
/// left alone there: its lock may be held by a thread that the child lacks.
Pool& pool()
{
  static int const forgets_on_fork =
    pthread_atfork(nullptr, nullptr, [] { current.store(nullptr); });
  if (auto* const existing = current.load(); existing != nullptr && forgets_on_fork == 0) {
    return *existing;
  }
  // Never destroyed: at process exit its threads may still be waiting.
  auto fresh     = std::make_unique<Pool>();
  Pool* expected = nullptr;
  if (current.compare_exchange_strong(expected, fresh.get())) { return *fresh.release(); }
  return *expected;
}

}  // namespace

void parallel_chunks(std::int64_t chunks,
                     int threads,
                     std::function<void(std::int64_t)> const& body)
{
  auto const helpers = static_cast<int>(std::min<std::int64_t>(chunks, threads)) - 1;
  if (helpers <= 0) {
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) { body(chunk); }
    return;
  }
  pool().run(chunks, helpers, body);
}

}  // namespace pytorch_direct
