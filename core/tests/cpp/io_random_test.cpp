// SPDX-License-Identifier: Apache-2.0
#include "io_support.hpp"

#include <random>
#include <thread>

namespace datapath::io_testing {
namespace {

constexpr std::size_t file_bytes = 1U << 20U;

struct RandomTest : EachBackend {
  /// Random writes and reads of any offset, length and address, compared with the same done in
  /// memory.
  void compare_with_model(std::string const& path, EngineOptions const& options, unsigned seed)
  {
    SCOPED_TRACE(path + " seed " + std::to_string(seed));
    auto const file = engine(options)->open(path, "w+");
    Memory const model{file_bytes};
    model.fill(std::byte{0});
    std::size_t size = 0;
    std::mt19937_64 random{seed};
    auto const below = [&](std::size_t limit) {
      return static_cast<std::size_t>(random() % limit);
    };
    auto const round = [&](std::size_t value) {
      // A third of all edges lies on a page, a third on a sector.
      auto const unit = below(3) == 0 ? 4096U : below(2) == 0 ? 512U : 1U;
      return value / unit * unit;
    };
    for (int step = 0; step < 250; ++step) {
      auto const offset = round(below(file_bytes));
      auto const nbytes =
        std::min(round(below(below(4) == 0 ? 400'000 : 20'000)), file_bytes - offset);
      Memory const memory{nbytes, below(2) == 0 ? 0 : below(600)};
      if (below(2) == 0) {
        memory.fill_pattern(random());
        ASSERT_EQ(write(*file, memory, offset), nbytes);
        std::copy(memory.data(), memory.data() + nbytes, model.data() + offset);
        if (nbytes != 0) { size = std::max(size, offset + nbytes); }
      } else {
        memory.fill(std::byte{0x5A});
        auto const want = std::min(nbytes, size > offset ? size - offset : 0);
        ASSERT_EQ(read(*file, memory, offset), want);
        ASSERT_TRUE(std::equal(memory.data(), memory.data() + want, model.data() + offset));
        ASSERT_TRUE(std::all_of(memory.data() + want, memory.data() + nbytes, [](std::byte b) {
          return b == std::byte{0x5A};
        }));
      }
    }
    EXPECT_EQ(file->size(), size);
  }
};

TEST_P(RandomTest, any_offset_length_and_address_agrees_with_memory_on_disk)
{
  for (unsigned seed = 1; seed <= 3; ++seed) { compare_with_model(folder_.file("disk"), {}, seed); }
}

TEST_P(RandomTest, any_offset_length_and_address_agrees_with_memory_on_tmpfs)
{
  if (!std::filesystem::is_directory("/dev/shm")) { GTEST_SKIP() << "no /dev/shm"; }
  TemporaryFolder const memory{"/dev/shm"};
  for (unsigned seed = 1; seed <= 3; ++seed) {
    compare_with_model(memory.file("memory"), {}, seed);
  }
}

TEST_P(RandomTest, any_offset_length_and_address_agrees_with_memory_through_the_page_cache)
{
  EngineOptions options;
  options.direct = -1;
  compare_with_model(folder_.file("cached"), options, 4);
}

TEST_P(RandomTest, nothing_changes_under_short_interrupted_and_reordered_requests)
{
  EngineOptions options;
  options.faults =
    "any:short@p=0.3,seed=1;any:eintr@p=0.1,seed=2;any:eagain@p=0.1,seed=3;"
    "any:reorder@window=4,p=0.5,seed=4";
  compare_with_model(folder_.file("faulty"), options, 5);
}

TEST_P(RandomTest, concurrent_writes_to_disjoint_ranges_never_disturb_each_other)
{
  // Ranges that share pages: their edges go through the page cache while neighbours go around it.
  auto const file = engine()->open(folder_.file("shared"), "w+");
  file->truncate(file_bytes);
  std::mt19937_64 random{7};
  std::vector<std::size_t> edges{0};
  while (edges.back() < file_bytes) {
    auto const length = 1 + random() % (random() % 4 == 0 ? 200'000 : 3'000);
    edges.push_back(std::min<std::size_t>(file_bytes, edges.back() + length));
  }
  constexpr std::size_t thread_count = 4;
  constexpr unsigned rounds          = 6;
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (std::size_t id = 0; id < thread_count; ++id) {
    threads.emplace_back([&, id] {
      for (unsigned round = 0; round < rounds; ++round) {
        std::vector<Memory> parts;
        std::vector<dp_io_request> requests;
        for (std::size_t i = id; i + 1 < edges.size(); i += thread_count) {
          // Aligned as in the file, so that large ones have a direct middle.
          parts.emplace_back(edges[i + 1] - edges[i], edges[i] % 4096);
          parts.back().fill_pattern(i * 100 + round);
          requests.push_back(request(parts.back(), edges[i]));
        }
        auto const ticket = file->write(requests, Owner{});
        failures += ticket->wait(patience_ns) && ticket->state() == DP_OK ? 0 : 1;
      }
    });
  }
  for (auto& thread : threads) { thread.join(); }
  ASSERT_EQ(failures, 0);
  Memory const all{file_bytes};
  ASSERT_EQ(read(*file, all, 0), file_bytes);
  EngineOptions cached;
  cached.direct = -1;
  Memory const seen{file_bytes};
  ASSERT_EQ(read(*engine(cached)->open(folder_.file("shared"), "r"), seen, 0), file_bytes);
  EXPECT_TRUE(all == seen);
  for (std::size_t i = 0; i + 1 < edges.size(); ++i) {
    Memory const want{edges[i + 1] - edges[i]};
    want.fill_pattern(i * 100 + rounds - 1);
    EXPECT_TRUE(std::equal(want.data(), want.data() + want.size(), all.data() + edges[i]))
      << edges[i];
  }
}

TEST_P(RandomTest, small_writes_beside_the_end_of_a_direct_one_lose_nothing)
{
  // The large write ends within a page in which others write. If its last sector went around the
  // page cache, the kernel would meet a dirty page there: an EIO at the next sync, or bytes written
  // back stale.
  constexpr std::size_t large_bytes = (64U << 10U) + 512;
  auto const file                   = engine()->open(folder_.file("page"), "w+");
  Memory const zeros{file_bytes};
  zeros.fill(std::byte{0});
  (void)write(*file, zeros, 0);
  std::atomic<bool> stop{false};
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (std::size_t id = 0; id < 2; ++id) {
    threads.emplace_back([&, id] {
      Memory const small{100};
      for (unsigned round = 0; !stop; ++round) {
        small.fill_pattern(round);
        auto const error = error_of([&] {
          (void)write(*file, small, large_bytes + id * 200);
          if (id == 0 && round % 16 == 0) { file->sync(); }
        });
        failures += error.status == DP_OK ? 0 : 1;
      }
    });
  }
  Memory const large{large_bytes};
  Memory const in{large_bytes};
  Memory const end{1024};
  for (unsigned round = 0; round < 60; ++round) {
    large.fill_pattern(1000 + round);
    auto const error = error_of([&] {
      (void)write(*file, large, 0);
      (void)read(*file, in, 0);
      (void)read(*file, end, large_bytes - 1024);
    });
    failures += error.status == DP_OK && in == large ? 0 : 1;
    failures +=
      std::equal(end.data(), end.data() + 1024, large.data() + large_bytes - 1024) ? 0 : 1;
  }
  stop = true;
  for (auto& thread : threads) { thread.join(); }
  EXPECT_EQ(failures, 0);
}

FOR_EACH_BACKEND(RandomTest);

}  // namespace
}  // namespace datapath::io_testing
