// SPDX-License-Identifier: Apache-2.0
/// @file
/// How long pinned memory takes to be ready, and an allocation from a pool that has it, as one JSON
/// object.
///
///     pool_bench [DEVICE] [MIB] [ROUNDS]    DEVICE: cuda:0, null or none; by default CUDA if there
///                                           is one
///
/// Pool and peer take turns, after one run of each that does not count: the first touch of a virtual
/// machine's memory is far slower than any later one. The figures are medians; every round is there
/// too.
///
/// The peer is the driver's own allocator, cuMemHostAlloc, where there is a driver; without one,
/// memory that a single thread touches page by page, which is what that allocator does at best.
#include <datapath/datapath.h>

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start)
{ return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double> values)
{
  std::ranges::sort(values);
  auto const middle = values.size() / 2;
  return values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::string as_json(std::vector<double> const& seconds)
{
  std::string text;
  for (auto const value : seconds) {
    char number[32];
    (void)std::snprintf(number, sizeof number, "%s%.4f", text.empty() ? "" : ", ", value);
    text += number;
  }
  return "[" + text + "]";
}

void check(dp_status status)
{
  if (status == DP_OK) { return; }
  dp_error_info info{};
  info.size = sizeof info;
  dp_last_error(&info);
  throw std::runtime_error{info.message};
}

dp_pool* make_pool(dp_device* device, std::uint64_t nbytes)
{
  dp_pool_options options{};
  options.size   = sizeof options;
  options.budget = nbytes;
  options.device = device;
  dp_pool* pool  = nullptr;
  check(dp_pool_create(&options, &pool));
  return pool;
}

/// Seconds until the bytes are backed, touched and registered.
double time_pool(dp_device* device, std::uint64_t nbytes)
{
  auto const start = Clock::now();
  auto* const pool = make_pool(device, nbytes);
  check(dp_pool_reserve(pool, nbytes));
  auto const seconds = seconds_since(start);
  dp_pool_release(pool);
  return seconds;
}

/// Seconds of the driver's allocator, by its exported names; the device's context must exist.
double time_driver(std::uint64_t nbytes)
{
  using Allocate      = int(void**, std::size_t, unsigned);
  using Free          = int(void*);
  using Retain        = int(void**, int);
  using Current       = int(void*);
  auto* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) { throw std::runtime_error{"no CUDA driver"}; }
  auto* const allocate = reinterpret_cast<Allocate*>(::dlsym(library, "cuMemHostAlloc"));
  auto* const release  = reinterpret_cast<Free*>(::dlsym(library, "cuMemFreeHost"));
  auto* const retain   = reinterpret_cast<Retain*>(::dlsym(library, "cuDevicePrimaryCtxRetain"));
  auto* const current  = reinterpret_cast<Current*>(::dlsym(library, "cuCtxSetCurrent"));
  void* context        = nullptr;
  if (retain(&context, 0) != 0 || current(context) != 0) {
    throw std::runtime_error{"no context for the driver's allocator"};
  }
  constexpr unsigned portable_and_mapped = 3;
  void* memory                           = nullptr;
  auto const start                       = Clock::now();
  if (allocate(&memory, nbytes, portable_and_mapped) != 0) {
    throw std::runtime_error{"cuMemHostAlloc failed"};
  }
  auto const seconds = seconds_since(start);
  release(memory);
  return seconds;
}

double time_touching(std::uint64_t nbytes)
{
  auto const start = Clock::now();
  auto* const memory =
    ::mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) { throw std::runtime_error{"no memory to touch"}; }
  ::madvise(memory, nbytes, MADV_NOHUGEPAGE);
  for (std::uint64_t offset = 0; offset < nbytes; offset += 4096) {
    static_cast<volatile char*>(memory)[offset] = 1;
  }
  auto const seconds = seconds_since(start);
  ::munmap(memory, nbytes);
  return seconds;
}

struct AllocationCost {
  double nanoseconds;
  double waste_bytes;  ///< Mean of what rounding adds.
};

/// Median of a release and an allocation in a full pool of mixed sizes.
AllocationCost time_allocations(dp_device* device, std::uint64_t nbytes)
{
  auto* const pool = make_pool(device, nbytes);
  check(dp_pool_reserve(pool, nbytes));
  std::uint64_t state = 1;
  auto const next     = [&state] {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return state >> 33U;
  };
  std::vector<dp_buffer*> held(1000);
  auto const size = [&] { return 1 + next() % (nbytes / 2000); };
  for (auto& buffer : held) { check(dp_pool_allocate(pool, size(), 0, &buffer)); }
  std::vector<double> times;
  for (int round = 0; round < 20'000; ++round) {
    auto& buffer     = held[next() % held.size()];
    auto const bytes = size();
    auto const start = Clock::now();
    dp_buffer_release(buffer);
    check(dp_pool_allocate(pool, bytes, 0, &buffer));
    times.push_back(1e9 * seconds_since(start));
  }
  dp_pool_stats stats{};
  stats.size = sizeof stats;
  check(dp_pool_get_stats(pool, &stats));
  for (auto* const buffer : held) { dp_buffer_release(buffer); }
  dp_pool_release(pool);
  return {median(std::move(times)),
          static_cast<double>(stats.allocated - stats.requested) /
            static_cast<double>(stats.live_buffers)};
}

void run(int count, char** arguments)
{
  std::string name  = count > 1 ? arguments[1] : "";
  dp_device* device = nullptr;
  if (name.empty()) {
    name = dp_device_open("cuda:0", &device) == DP_OK ? "cuda:0" : "none";
  } else if (name != "none") {
    check(dp_device_open(name.c_str(), &device));
  }
  auto const on_gpu = name.starts_with("cuda");
  auto const mib    = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : on_gpu ? 8192U : 512U;
  auto const nbytes = std::uint64_t{mib} << 20U;

  auto const rounds = count > 3 ? std::strtoull(arguments[3], nullptr, 10) : 5U;
  if (rounds == 0) { throw std::runtime_error{"there must be at least one round"}; }

  auto const time_peer = [&] { return on_gpu ? time_driver(nbytes) : time_touching(nbytes); };
  (void)time_pool(device, nbytes);
  (void)time_peer();
  std::vector<double> ours;
  std::vector<double> peers;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    ours.push_back(time_pool(device, nbytes));
    peers.push_back(time_peer());
  }
  auto const pool_seconds = median(ours);
  auto const peer_seconds = median(peers);
  auto const cost         = time_allocations(device, nbytes);
  std::printf(
    "{\"benchmark\": \"pinned_pool\", \"device\": \"%s\", \"bytes\": %llu, "
    "\"pool_seconds\": %.4f, \"peer\": \"%s\", \"peer_seconds\": %.4f, \"peer_over_pool\": %.2f, "
    "\"pool_rounds\": %s, \"peer_rounds\": %s, "
    "\"allocate_and_release_ns\": %.0f, \"waste_bytes_per_allocation\": %.0f}\n",
    name.c_str(),
    static_cast<unsigned long long>(nbytes),
    pool_seconds,
    on_gpu ? "cuMemHostAlloc" : "one thread touching 4 KiB pages",
    peer_seconds,
    peer_seconds / pool_seconds,
    as_json(ours).c_str(),
    as_json(peers).c_str(),
    cost.nanoseconds,
    cost.waste_bytes);
  dp_device_release(device);
}

}  // namespace

int main(int count, char** arguments)
{
  try {
    run(count, arguments);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "pool_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
