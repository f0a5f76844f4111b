// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the stream scheduler costs and carries: a caller's cost of one submission, copies one way and both
/// ways, and the pipelined way between device and disk beside each of its two hops, measured in the same
/// run in interleaved rounds. One JSON line for each row.
#include "bench.hpp"

#include <datapath/datapath.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::uint64_t MiB = 1U << 20U;

double quantile(std::vector<double> values, double share)
{
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

double median(std::vector<double> values)
{ return quantile(std::move(values), 0.5); }

dp_place memory_place(std::int32_t kind, std::uint64_t address)
{
  dp_place place{};
  place.kind    = kind;
  place.address = address;
  return place;
}

dp_place file_place(dp_file* file, std::uint64_t offset)
{
  dp_place place{};
  place.kind   = DP_FILE;
  place.file   = file;
  place.offset = offset;
  return place;
}

/// Everything a run needs: a device, a scheduler, pinned memory for each direction, device memory, a file.
struct Bench {
  explicit Bench(char const* device_name, std::string const& directory, std::uint64_t size)
    : nbytes{size}
  {
    check(dp_device_open(device_name, &device));
    dp_pool_options pool_options{};
    pool_options.size   = sizeof(pool_options);
    pool_options.device = device;
    check(dp_pool_create(&pool_options, &pool));
    dp_scheduler_options options{};
    options.size = sizeof(options);
    options.pool = pool;
    check(dp_scheduler_create(device, &options, &scheduler));
    for (auto* const side : {&upload, &download}) {
      dp_buffer* buffer{nullptr};
      check(dp_pool_allocate(pool, nbytes, 0, &buffer));
      dp_buffer_info info{};
      info.size = sizeof(info);
      check(dp_buffer_get_info(buffer, &info));
      std::memset(info.pointer, 7, nbytes);
      side->buffer  = buffer;
      side->address = reinterpret_cast<std::uint64_t>(info.pointer);
      check(dp_device_allocate(device, nbytes, &side->on_device));
    }
    dp_engine_options engine_options{};
    engine_options.size = sizeof(engine_options);
    check(dp_engine_create(&engine_options, &engine));
    path = directory + "/scheduler_bench.tmp";
    check(dp_engine_open(engine, path.c_str(), "w+", &file));
  }
  Bench(Bench const&)            = delete;
  Bench& operator=(Bench const&) = delete;
  ~Bench()
  {
    dp_file_release(file);
    dp_engine_release(engine);
    std::remove(path.c_str());
    dp_scheduler_close(scheduler);
    dp_scheduler_release(scheduler);
    for (auto* const side : {&upload, &download}) {
      dp_device_free(device, side->on_device);
      dp_buffer_release(side->buffer);
    }
    dp_pool_release(pool);
    dp_device_release(device);
  }

  [[nodiscard]] dp_ticket* submit(dp_place destination, dp_place source, std::uint64_t count) const
  {
    dp_ticket* ticket{nullptr};
    check(dp_transfer(scheduler, &destination, &source, count, nullptr, &ticket));
    return ticket;
  }

  struct Side {
    dp_buffer* buffer{nullptr};
    std::uint64_t address{0};
    std::uint64_t on_device{0};
  };
  std::uint64_t nbytes;
  dp_device* device{nullptr};
  dp_pool* pool{nullptr};
  dp_scheduler* scheduler{nullptr};
  Side upload;
  Side download;
  dp_engine* engine{nullptr};
  dp_file* file{nullptr};
  std::string path;
};

void finish(dp_ticket* ticket)
{
  auto const status = dp_ticket_result(ticket, UINT64_MAX, nullptr);
  dp_ticket_release(ticket);
  check(status);
}

struct SubmitMode {
  char const* name;
  std::size_t burst;  ///< Submissions before their tickets are waited for.
  unsigned pause_us;  ///< Long enough for the scheduler's thread to fall asleep.
  bool after_stream;  ///< Each follows a stream of the caller's, as after a computation.
  std::size_t samples;
};

void submit_cost(Bench const& bench, char const* device, SubmitMode const& mode)
{
  auto const destination = memory_place(DP_DEVICE, bench.upload.on_device);
  auto const source      = memory_place(DP_HOST, bench.upload.address);
  dp_stream stream{0};
  check(dp_stream_create(bench.device, 0, &stream));
  dp_transfer_options options{};
  options.size               = sizeof(options);
  options.after_streams      = &stream;
  options.after_stream_count = mode.after_stream ? 1 : 0;
  std::vector<double> costs;
  std::vector<dp_ticket*> tickets(mode.burst);
  while (costs.size() < mode.samples) {
    for (auto& ticket : tickets) {
      if (mode.pause_us != 0) { ::usleep(mode.pause_us); }
      auto const start = now();
      check(dp_transfer(bench.scheduler, &destination, &source, 4096, &options, &ticket));
      costs.push_back((now() - start) * 1e6);
    }
    for (auto* const ticket : tickets) { finish(ticket); }
  }
  check(dp_stream_destroy(bench.device, stream));
  std::printf(
    "{\"work\":\"submit\",\"device\":\"%s\",\"mode\":\"%s\",\"burst\":%zu,\"median_us\":%.3f,"
    "\"p90_us\":%.3f,\"p99_us\":%.3f}\n",
    device,
    mode.name,
    mode.burst,
    median(costs),
    quantile(costs, 0.9),
    quantile(costs, 0.99));
  std::fflush(stdout);
}

/// Bytes a nanosecond of what `run` starts; it gives the tickets.
template <class Run>
double rate(std::uint64_t nbytes, Run&& run)
{
  auto const start = now();
  for (auto* const ticket : run()) { finish(ticket); }
  return static_cast<double>(nbytes) / (now() - start) / 1e9;
}

struct Rates {
  std::vector<double> h2d, d2h, both, write, read, device_to_disk, disk_to_device;
};

void round(Bench const& bench, Rates& rates)
{
  constexpr std::uint64_t step = 64 * MiB;
  using Tickets                = std::vector<dp_ticket*>;
  auto const copy              = [&](Tickets& tickets, bool up) {
    for (std::uint64_t at = 0; at < bench.nbytes; at += step) {
      auto const count  = std::min(step, bench.nbytes - at);
      auto const& side  = up ? bench.upload : bench.download;
      auto const device = memory_place(DP_DEVICE, side.on_device + at);
      auto const host   = memory_place(DP_HOST, side.address + at);
      tickets.push_back(up ? bench.submit(device, host, count) : bench.submit(host, device, count));
    }
  };
  auto const disk = [&](bool write, dp_place const& memory) {
    auto const file = file_place(bench.file, 0);
    return rate(bench.nbytes, [&] {
      return Tickets{write ? bench.submit(file, memory, bench.nbytes)
                           : bench.submit(memory, file, bench.nbytes)};
    });
  };
  auto const one_way = [&](bool up) {
    return rate(bench.nbytes, [&] {
      Tickets tickets;
      copy(tickets, up);
      return tickets;
    });
  };
  rates.h2d.push_back(one_way(true));
  rates.d2h.push_back(one_way(false));
  rates.both.push_back(rate(2 * bench.nbytes, [&] {
    Tickets tickets;
    copy(tickets, true);
    copy(tickets, false);
    return tickets;
  }));
  auto const host   = memory_place(DP_HOST, bench.download.address);
  auto const device = memory_place(DP_DEVICE, bench.download.on_device);
  rates.write.push_back(disk(true, host));
  rates.device_to_disk.push_back(disk(true, device));
  rates.read.push_back(disk(false, host));
  rates.disk_to_device.push_back(disk(false, device));
}

void report(Rates const& rates, char const* device, std::uint64_t nbytes, unsigned rounds)
{
  auto const h2d      = median(rates.h2d);
  auto const d2h      = median(rates.d2h);
  auto const both     = median(rates.both);
  auto const out      = median(rates.device_to_disk);
  auto const in       = median(rates.disk_to_device);
  auto const slow_out = std::min(median(rates.write), d2h);
  auto const slow_in  = std::min(median(rates.read), h2d);
  auto const mib      = static_cast<unsigned long long>(nbytes / MiB);
  std::printf(
    "{\"work\":\"copy\",\"device\":\"%s\",\"mib\":%llu,\"rounds\":%u,\"h2d_gb_s\":%.3f,"
    "\"d2h_gb_s\":%.3f,\"both_gb_s\":%.3f}\n",
    device,
    mib,
    rounds,
    h2d,
    d2h,
    both);
  std::printf(
    "{\"work\":\"device_to_disk\",\"device\":\"%s\",\"mib\":%llu,\"rounds\":%u,"
    "\"gb_s\":%.3f,\"disk_gb_s\":%.3f,\"link_gb_s\":%.3f,\"over_slower_hop\":%.3f}\n",
    device,
    mib,
    rounds,
    out,
    median(rates.write),
    d2h,
    out / slow_out);
  std::printf(
    "{\"work\":\"disk_to_device\",\"device\":\"%s\",\"mib\":%llu,\"rounds\":%u,"
    "\"gb_s\":%.3f,\"disk_gb_s\":%.3f,\"link_gb_s\":%.3f,\"over_slower_hop\":%.3f}\n",
    device,
    mib,
    rounds,
    in,
    median(rates.read),
    h2d,
    in / slow_in);
}

constexpr SubmitMode submit_modes[] = {
  {"one at a time", 1, 0, false, 8192},
  {"in bursts", 64, 0, false, 8192},
  {"in bursts, after a stream", 64, 0, true, 8192},
  {"after a pause", 1, 500, false, 1024},
  {"after a pause, after a stream", 1, 500, true, 1024},
};

}  // namespace

int main(int argc, char** argv)
{
  if (argc < 3) {
    std::fprintf(
      stderr,
      "usage: %s DEVICE DIRECTORY [MIB 1024] [ROUNDS 5]\n"
      "DEVICE is null or cuda:N; a file of MIB mebibytes is written to DIRECTORY and removed.\n",
      argv[0]);
    return 2;
  }
  try {
    auto const mib    = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1024;
    auto const rounds = argc > 4 ? static_cast<unsigned>(std::atoi(argv[4])) : 5U;
    Bench const bench{argv[1], argv[2], mib * MiB};
    for (auto const& mode : submit_modes) { submit_cost(bench, argv[1], mode); }
    Rates rates;
    for (unsigned index = 0; index < std::max(rounds, 1U); ++index) { round(bench, rates); }
    report(rates, argv[1], mib * MiB, rounds);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "scheduler_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
