// SPDX-License-Identifier: Apache-2.0
#include "streams/workers.hpp"

#include <pthread.h>

namespace datapath {

void Workers::join() noexcept
{
  {
    std::lock_guard const lock{mutex_};
    stop_ = true;
  }
  changed_.notify_all();
  for (auto& thread : threads_) { thread.join(); }
  threads_.clear();
}

void Workers::submit(Job job)
{
  {
    std::lock_guard const lock{mutex_};
    if (jobs_.size() >= idle_ && threads_.size() < limit_) {
      try {
        threads_.emplace_back([this] { work(); });
        ::pthread_setname_np(threads_.back().native_handle(), name_);
      } catch (...) {
        if (threads_.empty()) { throw; }
      }
    }
    jobs_.push_back(job);
  }
  changed_.notify_one();
}

void Workers::work()
{
  std::unique_lock lock{mutex_};
  while (true) {
    ++idle_;
    changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    --idle_;
    if (jobs_.empty()) { return; }
    auto const job = jobs_.front();
    jobs_.pop_front();
    lock.unlock();
    job.run(job.subject);
    lock.lock();
  }
}

}  // namespace datapath
