// SPDX-License-Identifier: Apache-2.0
#include "memory/parallel.hpp"

#include "streams/numa.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace datapath {

void in_parallel(std::size_t count,
                 unsigned threads,
                 int numa_node,
                 std::function<void(std::size_t)> const& body)
{
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr first;
  auto const work = [&] {
    for (auto item = next.fetch_add(1); item < count; item = next.fetch_add(1)) {
      try {
        body(item);
      } catch (...) {
        next.store(count);
        std::lock_guard const lock{mutex};
        if (!first) { first = std::current_exception(); }
      }
    }
  };
  auto const cpus   = cpus_of_node(numa_node);
  auto const wanted = std::min<std::size_t>(threads, count);
  std::vector<std::thread> helpers;
  helpers.reserve(wanted);
  try {
    while (helpers.size() + 1 < wanted) {
      helpers.emplace_back([&] {
        // Best effort: on another node the pages are touched from further away, and are right.
        if (cpus) { (void)::sched_setaffinity(0, sizeof *cpus, &*cpus); }
        work();
      });
    }
  } catch (std::system_error const&) {
    // Fewer threads than hoped for.
  }
  work();
  for (auto& helper : helpers) { helper.join(); }
  if (first) { std::rethrow_exception(first); }
}

}  // namespace datapath
