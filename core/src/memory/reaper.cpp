// SPDX-License-Identifier: Apache-2.0
#include "memory/reaper.hpp"

#include "support/per_process.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace datapath {

namespace {

using namespace std::chrono_literals;

constexpr auto shortest_pause = 50us;
constexpr auto longest_pause  = 10ms;
constexpr auto idle_time      = 1s;

class Reaper {
 public:
  void add(std::function<bool()> done)
  {
    {
      std::lock_guard const lock{mutex_};
      if (running_ || start()) {
        fresh_.push_back(std::move(done));
        added_.notify_one();
        return;
      }
    }
    // No thread can be had: the caller waits itself.
    while (!stopping() && !done()) { std::this_thread::sleep_for(longest_pause); }
  }

  /// Returns once no call is in progress; none follows.
  void stop()
  {
    {
      std::lock_guard const lock{mutex_};
      stopping_ = true;
    }
    std::lock_guard const lock{polling_};
  }

 private:
  bool start()
  {
    try {
      std::thread{[this] { run(); }}.detach();
    } catch (std::system_error const&) {
      return false;
    }
    return running_ = true;
  }

  void run()
  {
    std::vector<std::function<bool()>> waiting;
    std::chrono::microseconds pause = shortest_pause;
    std::unique_lock lock{mutex_};
    while (!stopping_) {
      if (!fresh_.empty()) { pause = shortest_pause; }
      std::ranges::move(fresh_, std::back_inserter(waiting));
      fresh_.clear();
      if (waiting.empty()) {
        // Nobody leaves a thread behind that has nothing to do.
        if (!added_.wait_for(lock, idle_time, [this] { return !fresh_.empty() || stopping_; })) {
          break;
        }
        continue;
      }
      lock.unlock();
      auto const before = waiting.size();
      poll(waiting);
      pause = waiting.size() < before
                ? shortest_pause
                : std::min<std::chrono::microseconds>(2 * pause, longest_pause);
      lock.lock();
      if (!waiting.empty()) {
        added_.wait_for(lock, pause, [this] { return !fresh_.empty(); });
      }
    }
    running_ = false;
    if (stopping_) { leak(std::move(waiting)); }
  }

  void poll(std::vector<std::function<bool()>>& waiting)
  {
    std::lock_guard const lock{polling_};
    if (stopping()) { return; }
    std::erase_if(waiting, [](std::function<bool()> const& done) { return done(); });
  }

  bool stopping()
  {
    std::lock_guard const lock{mutex_};
    return stopping_;
  }

  /// The process exits: what they hold must not be destroyed any more.
  static void leak(std::vector<std::function<bool()>> waiting)
  { (void)new std::vector<std::function<bool()>>{std::move(waiting)}; }

  std::mutex mutex_;
  std::mutex polling_;
  std::condition_variable added_;
  std::vector<std::function<bool()>> fresh_;
  bool running_{false};
  bool stopping_{false};
};

PerProcess<Reaper> reaper;

}  // namespace

void reap(std::function<bool()> done)
{
  [[maybe_unused]] static int const stops_at_exit = std::atexit([] { reaper.get().stop(); });
  reaper.get().add(std::move(done));
}

}  // namespace datapath
