// SPDX-License-Identifier: Apache-2.0
/// @file
/// Random sequences of allocations: nothing overlaps, the books are exact, and everything joins
/// again.
#include "device_support.hpp"
#include "memory/pool.hpp"
#include "streams/null_device.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

namespace datapath::testing {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20U;

Ref<Pool> make(Ref<Device> device, std::uint64_t budget, std::uint64_t piece_bytes)
{
  PoolOptions options;
  options.budget      = budget;
  options.piece_bytes = piece_bytes;
  options.device      = std::move(device);
  return make_ref<Pool>(std::move(options));
}

std::uint64_t rounded(std::uint64_t nbytes)
{ return round_up(nbytes, allocation_grain); }

/// Mirrors a pool's live buffers.
class Model {
 public:
  explicit Model(Ref<Pool> pool) : pool_{std::move(pool)} {}

  void add(Ref<Buffer> buffer)
  {
    auto const start = address_of(buffer->data());
    auto const end   = start + rounded(buffer->nbytes());
    if (start != end) {
      auto const after = by_start_.lower_bound(start);
      ASSERT_TRUE(after == by_start_.end() || after->first >= end) << "overlaps the next";
      ASSERT_TRUE(after == by_start_.begin() || std::prev(after)->second <= start)
        << "overlaps the one before";
      by_start_.emplace(start, end);
    }
    allocated_ += end - start;
    requested_ += buffer->nbytes();
    live_.push_back(std::move(buffer));
  }

  void remove(std::size_t index)
  {
    std::swap(live_[index], live_.back());
    auto const& buffer = live_.back();
    allocated_ -= rounded(buffer->nbytes());
    requested_ -= buffer->nbytes();
    if (buffer->nbytes() != 0) { by_start_.erase(address_of(buffer->data())); }
    live_.pop_back();
  }

  void check() const
  {
    auto const stats = pool_->stats();
    ASSERT_EQ(stats.allocated, allocated_);
    ASSERT_EQ(stats.requested, requested_);
    ASSERT_EQ(stats.live_buffers, live_.size());
    ASSERT_LE(stats.backed, stats.budget);
    ASSERT_NO_THROW(pool_->check_invariants());
  }

  [[nodiscard]] std::size_t size() const { return live_.size(); }
  [[nodiscard]] Buffer& at(std::size_t index) const { return *live_[index]; }

 private:
  Ref<Pool> pool_;
  std::vector<Ref<Buffer>> live_;
  std::map<std::uint64_t, std::uint64_t> by_start_;
  std::uint64_t allocated_{0};
  std::uint64_t requested_{0};
};

TEST(PoolRandomTest, KeepsItsBooksOver100000Operations)
{
  auto const device = make_ref<NullDevice>();
  auto const pool   = make(device, 64 * mib, 4 * mib);
  auto const stream = device->create_stream(0);
  Model model{pool};
  std::mt19937_64 random{20240229};
  std::uint64_t refused = 0;
  for (int operation = 0; operation < 100'000; ++operation) {
    auto const kind = random() % 100;
    if (kind < 52) {
      // Mostly small, some larger than what the pool grows by, some empty.
      auto const scale     = random() % 24;
      auto const nbytes    = scale == 0 ? 0 : random() % (std::uint64_t{1} << scale);
      auto const alignment = random() % 4 == 0 ? std::uint64_t{1} << (random() % 22) : 0;
      try {
        auto buffer = pool->allocate(nbytes, alignment);
        if (alignment != 0) { ASSERT_EQ(address_of(buffer->data()) % alignment, 0U); }
        ASSERT_NO_FATAL_FAILURE(model.add(std::move(buffer)));
      } catch (Error const& error) {
        ASSERT_EQ(error.info().status, DP_ERR_BUDGET) << error.what();
        ++refused;
        for (int some = 0; some < 20 && model.size() != 0; ++some) {
          model.remove(random() % model.size());
        }
      }
    } else if (kind < 99 && model.size() != 0) {
      auto const index = random() % model.size();
      if (kind < 60) { model.at(index).record_use(*device, stream); }
      model.remove(index);
    } else if (random() % 8 == 0) {
      (void)pool->trim();
    }
    if (operation % 1000 == 0) { ASSERT_NO_FATAL_FAILURE(model.check()); }
  }
  EXPECT_GT(refused, 0U) << "the run never met its budget";
  while (model.size() != 0) { model.remove(model.size() - 1); }
  device->synchronize(stream);
  ASSERT_NO_FATAL_FAILURE(model.check());
  auto const stats = pool->stats();
  EXPECT_EQ(stats.allocated, 0U);
  EXPECT_EQ(stats.pending, 0U);
  EXPECT_EQ(pool->trim(), stats.backed);
  EXPECT_EQ(pool->stats().pieces, 0U);
  EXPECT_EQ(device->registered_ranges(), 0U);
}

TEST(PoolRandomTest, ManyThreadsGetMemoryOfTheirOwn)
{
  auto const device = make_ref<NullDevice>();
  auto const pool   = make(device, 64 * mib, 2 * mib);
  std::atomic<int> spoilt{0};
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937 random{thread};
      std::vector<Ref<Buffer>> held;
      auto const mark = static_cast<unsigned char>(thread + 1);
      for (int round = 0; round < 500; ++round) {
        auto buffer = pool->allocate(1 + random() % 300'000);
        std::memset(buffer->data(), mark, buffer->nbytes());
        held.push_back(std::move(buffer));
        if (held.size() > 12) {
          auto const index = random() % held.size();
          std::swap(held[index], held.back());
          auto const* bytes = static_cast<unsigned char const*>(held.back()->data());
          auto const nbytes = held.back()->nbytes();
          if (bytes[0] != mark || bytes[nbytes / 2] != mark || bytes[nbytes - 1] != mark) {
            ++spoilt;
          }
          held.pop_back();
        }
        if (round % 100 == 0) { (void)pool->trim(); }
      }
    });
  }
  for (auto& thread : threads) { thread.join(); }
  EXPECT_EQ(spoilt, 0);
  pool->check_invariants();
  EXPECT_EQ(pool->stats().allocated, 0U);
}

}  // namespace
}  // namespace datapath::testing
