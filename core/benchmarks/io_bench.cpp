// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads and writes one file with O_DIRECT through bare io_uring (the limit), and through the
/// library's uring and threads backends, in interleaved rounds; one JSON line for each row.
#include "bench.hpp"
#include "raw_ring.hpp"

#include <datapath/datapath.h>

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace {

using bench::RawRing;

struct Work {
  char const* name;
  std::uint64_t block;
  unsigned depth;
  unsigned batch;  ///< Requests to a ticket; the limit has no such thing.
  bool write;
  bool random;
};

struct Run {
  std::string path;
  std::uint64_t nbytes{0};
  double seconds{2};
  unsigned threads{1};
  unsigned rounds{3};
  unsigned depth{0};
  unsigned batch{0};
};

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<std::byte, FreeMemory>;

Memory aligned_memory(std::size_t nbytes)
{
  void* memory = nullptr;
  if (::posix_memalign(&memory, 4096, nbytes) != 0) { throw std::bad_alloc{}; }
  std::memset(memory, 7, nbytes);
  return Memory{static_cast<std::byte*>(memory)};
}

/// The offsets of one thread: random, or in order from a place of its own.
class Offsets {
 public:
  Offsets(Work const& work, Run const& run, unsigned thread)
    : block_{work.block},
      blocks_{run.nbytes / work.block},
      random_{work.random},
      state_{thread * 7919ULL + 12345},
      position_{thread * (blocks_ / 64)}
  {}
  std::uint64_t next()
  {
    if (random_) {
      state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
      return (state_ >> 20U) % blocks_ * block_;
    }
    position_ = (position_ + 1) % blocks_;
    return position_ * block_;
  }

 private:
  std::uint64_t block_;
  std::uint64_t blocks_;
  bool random_;
  std::uint64_t state_;
  std::uint64_t position_;
};

std::uint64_t raw_thread(Work const& work, Run const& run, unsigned thread, double end)
{
  int const file = ::open(run.path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
  if (file < 0) { bench::throw_errno("open"); }
  RawRing ring{work.depth};
  auto const memory = aligned_memory(work.block * work.depth);
  Offsets offsets{work, run, thread};
  std::vector<std::uint64_t> free;
  for (unsigned i = 0; i < work.depth; ++i) { free.push_back(i); }
  std::uint64_t done = 0;
  auto const length  = static_cast<unsigned>(work.block);
  while (now() < end || free.size() < work.depth) {
    while (now() < end && !free.empty()) {
      auto const slot = free.back();
      free.pop_back();
      ring.prepare(
        work.write, file, memory.get() + slot * work.block, length, offsets.next(), slot);
    }
    ring.enter();
    ring.reap(length, [&](std::uint64_t slot) {
      free.push_back(slot);
      ++done;
    });
  }
  ::close(file);
  return done;
}

std::uint64_t library_thread(
  Work const& work, Run const& run, unsigned thread, double end, dp_file* file)
{
  auto const memory = aligned_memory(work.block * work.depth);
  Offsets offsets{work, run, thread};
  auto const groups = std::max(work.depth / work.batch, 1U);
  std::vector<dp_ticket*> tickets(groups, nullptr);
  std::vector<dp_io_request> requests(work.batch);
  std::uint64_t done = 0;
  auto const finish  = [&](dp_ticket*& ticket) {
    if (ticket == nullptr) { return; }
    std::uint64_t nbytes = 0;
    check(dp_ticket_result(ticket, UINT64_MAX, &nbytes));
    dp_ticket_release(std::exchange(ticket, nullptr));
    done += nbytes / work.block;
  };
  for (unsigned group = 0; now() < end; group = (group + 1) % groups) {
    finish(tickets[group]);
    for (unsigned i = 0; i < work.batch; ++i) {
      requests[i] = {memory.get() + (std::uint64_t{group} * work.batch + i) * work.block,
                     work.block,
                     offsets.next()};
    }
    auto* const submit = work.write ? dp_file_write : dp_file_read;
    check(submit(file, requests.data(), requests.size(), dp_owner{}, &tickets[group]));
  }
  for (auto& ticket : tickets) { finish(ticket); }
  return done;
}

struct Rate {
  double gb_s;
  double cpu_us;  ///< Processor time of the process, for each block.
};

double cpu_seconds()
{
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  auto const seconds = [](timeval const& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Runs `body(thread, end)` on all threads; it returns the blocks that it moved.
Rate measure(Work const& work,
             Run const& run,
             std::function<std::uint64_t(unsigned, double)> const& body)
{
  std::vector<std::thread> threads;
  std::vector<std::uint64_t> done(run.threads);
  auto const start = now();
  auto const cpu   = cpu_seconds();
  for (unsigned i = 0; i < run.threads; ++i) {
    threads.emplace_back([&, i] { done[i] = body(i, start + run.seconds); });
  }
  std::uint64_t blocks = 0;
  for (unsigned i = 0; i < run.threads; ++i) {
    threads[i].join();
    blocks += done[i];
  }
  auto const seconds = now() - start;
  auto const count   = static_cast<double>(blocks);
  return {count * static_cast<double>(work.block) / seconds / 1e9,
          (cpu_seconds() - cpu) / count * 1e6};
}

Rate measure_library(Work const& work, Run const& run, char const* backend)
{
  dp_engine_options options{};
  options.size      = sizeof(options);
  options.backend   = backend;
  options.depth     = work.depth;
  options.threads   = run.threads;
  options.direct    = 1;
  dp_engine* engine = nullptr;
  dp_file* file     = nullptr;
  check(dp_engine_create(&options, &engine));
  check(dp_engine_open(engine, run.path.c_str(), "r+", &file));
  auto const rate = measure(work, run, [&](unsigned thread, double end) {
    return library_thread(work, run, thread, end, file);
  });
  dp_file_release(file);
  check(dp_engine_close(engine));
  dp_engine_release(engine);
  return rate;
}

void make_file(Run const& run)
{
  int const file = ::open(run.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) { bench::throw_errno("open"); }
  auto const have            = static_cast<std::uint64_t>(::lseek(file, 0, SEEK_END));
  constexpr std::size_t step = 4U << 20U;
  auto const memory          = aligned_memory(step);
  for (auto at = have / step * step; at < run.nbytes; at += step) {
    if (::pwrite(file, memory.get(), step, static_cast<off_t>(at)) < 0) {
      bench::throw_errno("pwrite");
    }
  }
  ::fsync(file);
  ::close(file);
}

/// Medians of rate and processor time.
Rate median(std::vector<Rate> const& rounds)
{
  auto const middle = [&](double Rate::* member) {
    std::vector<double> values;
    for (auto const& each : rounds) { values.push_back(each.*member); }
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  return {middle(&Rate::gb_s), middle(&Rate::cpu_us)};
}

void report(Work work, Run const& run)
{
  if (run.depth != 0) { work.depth = run.depth; }
  if (run.batch != 0) { work.batch = run.batch; }
  work.batch = std::min(work.batch, work.depth);
  std::vector<Rate> raw;
  std::vector<Rate> uring;
  std::vector<Rate> threads;
  for (unsigned round = 0; round < run.rounds; ++round) {
    raw.push_back(measure(
      work, run, [&](unsigned thread, double end) { return raw_thread(work, run, thread, end); }));
    uring.push_back(measure_library(work, run, "uring"));
    threads.push_back(measure_library(work, run, "threads"));
  }
  auto const limit   = median(raw);
  auto const ring    = median(uring);
  auto const workers = median(threads);
  std::printf(
    "{\"work\":\"%s\",\"block\":%llu,\"depth\":%u,\"batch\":%u,\"threads\":%u,\"rounds\":%u,"
    "\"direct\":true,\"limit_gb_s\":%.4f,\"uring_gb_s\":%.4f,\"threads_gb_s\":%.4f,"
    "\"uring_over_limit\":%.3f,\"uring_over_threads\":%.3f,"
    "\"limit_cpu_us\":%.2f,\"uring_cpu_us\":%.2f,\"threads_cpu_us\":%.2f}\n",
    work.name,
    static_cast<unsigned long long>(work.block),
    work.depth,
    work.batch,
    run.threads,
    run.rounds,
    limit.gb_s,
    ring.gb_s,
    workers.gb_s,
    ring.gb_s / limit.gb_s,
    ring.gb_s / workers.gb_s,
    limit.cpu_us,
    ring.cpu_us,
    workers.cpu_us);
  std::fflush(stdout);
}

constexpr Work works[] = {
  {"random_read_4KiB", 4096, 128, 32, false, true},
  {"sequential_read_1MiB", 1U << 20U, 16, 4, false, false},
  {"sequential_write_1MiB", 1U << 20U, 16, 4, true, false},
};

}  // namespace

int main(int argc, char** argv)
{
  if (argc < 3) {
    std::fprintf(stderr,
                 "usage: %s FILE MIB [THREADS 1] [SECONDS 2] [ROUNDS 3] [DEPTH] [BATCH] [WORK]\n"
                 "FILE is made or filled up to MIB mebibytes, and overwritten.\n",
                 argv[0]);
    return 2;
  }
  auto const number = [&](int at, double fallback) {
    return argc > at ? std::atof(argv[at]) : fallback;
  };
  try {
    Run run;
    run.path    = argv[1];
    run.nbytes  = std::strtoull(argv[2], nullptr, 10) << 20U;
    run.threads = static_cast<unsigned>(number(3, 1));
    run.seconds = number(4, 2);
    run.rounds  = static_cast<unsigned>(number(5, 3));
    run.depth   = static_cast<unsigned>(number(6, 0));
    run.batch   = static_cast<unsigned>(number(7, 0));
    make_file(run);
    for (auto const& work : works) {
      if (argc <= 8 || std::string{work.name} == argv[8]) { report(work, run); }
    }
  } catch (std::exception const& error) {
    std::fprintf(stderr, "io_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
