// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"
#include "scheduler.hpp"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>

namespace datapath::python {

namespace {

/// Leaked on purpose: schedulers serve until the process ends, and none may be torn down after main.
struct Shared {
  std::mutex mutex;
  std::map<int, client::Scheduler> by_ordinal;
};

}  // namespace

client::Scheduler shared_scheduler(int ordinal)
{
  static std::atomic<Shared*> shared{new Shared};
  static std::atomic<pid_t> owner{::getpid()};
  // A child of fork starts anew: what it inherited has its threads in the parent.
  if (owner.exchange(::getpid()) != ::getpid()) { shared.store(new Shared); }
  GilReleased const released;
  auto& here = *shared.load();
  std::lock_guard const lock{here.mutex};
  auto& scheduler = here.by_ordinal[ordinal];
  if (!scheduler) {
    scheduler = client::Scheduler{client::Device{"cuda:" + std::to_string(ordinal)}};
  }
  return scheduler;
}

std::vector<dp_stream> streams_before(std::initializer_list<Operand> operands)
{
  std::vector<dp_stream> streams;
  for (auto const& operand : operands) {
    if (operand.kind != MemoryKind::cuda) { continue; }
    if (operand.from_torch) {
      streams.push_back(torch_current_stream(operand.ordinal));
    } else if (operand.from_dlpack) {
      streams.push_back(1);
    }
  }
  std::sort(streams.begin(), streams.end());
  streams.erase(std::unique(streams.begin(), streams.end()), streams.end());
  return streams;
}

}  // namespace datapath::python
