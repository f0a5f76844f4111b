// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a forked child sees of a pool's memory.
#include "device_support.hpp"
#include "memory/pool.hpp"

#include <gtest/gtest.h>

#include <sys/mman.h>

#include <cstring>
#include <utility>

namespace datapath::testing {
namespace {

constexpr std::uint64_t budget = std::uint64_t{4} << 20U;

bool is_there(void* memory)
{
  unsigned char resident = 0;
  return ::mincore(memory, page_bytes(), &resident) == 0;
}

TEST(PoolForkTest, PinnedMemoryIsNotThere)
{
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "in a child, ThreadSanitizer may map memory of its own where the pool's was";
#endif
  PoolOptions options;
  options.budget    = budget;
  options.device    = Device::open("null");
  auto const pool   = make_ref<Pool>(std::move(options));
  auto const buffer = pool->allocate(1000);
  EXPECT_TRUE(is_there(buffer->data()));
  EXPECT_TRUE(in_child([&] { return !is_there(buffer->data()); }));
}

TEST(PoolForkTest, PlainMemoryStaysReadable)
{
  if (Device::open_default()) { GTEST_SKIP() << "there is a CUDA device here, which pins"; }
  PoolOptions options;
  options.budget    = budget;
  auto const pool   = make_ref<Pool>(std::move(options));
  auto const buffer = pool->allocate(1000);
  std::memset(buffer->data(), 9, buffer->nbytes());
  EXPECT_TRUE(in_child([&] {
    return is_there(buffer->data()) && *static_cast<unsigned char const*>(buffer->data()) == 9;
  }));
}

}  // namespace
}  // namespace datapath::testing
