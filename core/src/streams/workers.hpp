// SPDX-License-Identifier: Apache-2.0
/// @file
/// Threads for what the progress thread must not do itself: copies of host memory.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace datapath {

/// Started when a job finds no idle thread.
class Workers {
 public:
  struct Job {
    void (*run)(void* subject) noexcept;
    void* subject;
  };

  Workers(char const* name, unsigned threads) : name_{name}, limit_{threads} {}
  ~Workers() { join(); }
  Workers(Workers const&)            = delete;
  Workers& operator=(Workers const&) = delete;

  /// Throws std::system_error if not even one thread can be had.
  void submit(Job job);
  /// Carries out what is queued and ends the threads; no job may follow.
  void join() noexcept;

 private:
  void work();

  char const* name_;
  unsigned limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::vector<std::thread> threads_;
  unsigned idle_{0};
  bool stop_{false};
};

}  // namespace datapath
