// SPDX-License-Identifier: Apache-2.0
#include "support/fork.hpp"

#include "support/error.hpp"

#include <pthread.h>

#include <atomic>
#include <string>

namespace datapath {

namespace {

std::atomic<std::uint32_t> generation{0};

// Only the child counts: the parent's handles stay good.
int const registered =
  ::pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

std::uint32_t fork_generation() noexcept
{
  (void)registered;
  return generation.load(std::memory_order_relaxed);
}

void ForkGuard::check(char const* what) const
{
  if (inherited()) {
    fail(
      DP_ERR_FORKED,
      std::string{what} +
        " was made before a fork and its threads and queues are in the parent; make a new one in "
        "the child, or start workers with the 'spawn' method");
  }
}

}  // namespace datapath
