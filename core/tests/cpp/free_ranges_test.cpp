// SPDX-License-Identifier: Apache-2.0
#include "memory/free_ranges.hpp"

#include <gtest/gtest.h>

namespace datapath::testing {
namespace {

constexpr std::uint64_t grain = 4096;
constexpr FreeRanges::Range everything{0, 1000 * grain};

TEST(FreeRangesTest, GivesNothingThatDoesNotFit)
{
  FreeRanges free;
  EXPECT_FALSE(free.take(grain, grain));
  free.insert({0, 2 * grain}, everything);
  EXPECT_FALSE(free.take(3 * grain, grain));
  EXPECT_EQ(free.total(), 2 * grain);
}

TEST(FreeRangesTest, TakesTheSmallestThatFits)
{
  FreeRanges free;
  free.insert({0, 10 * grain}, everything);
  free.insert({20 * grain, 23 * grain}, everything);
  free.insert({30 * grain, 35 * grain}, everything);
  EXPECT_EQ(free.take(3 * grain, grain), 20 * grain);
  EXPECT_EQ(free.take(4 * grain, grain), 30 * grain);
  EXPECT_EQ(free.total(), 11 * grain);
}

TEST(FreeRangesTest, KeepsBothRemaindersOfAnAlignedPart)
{
  FreeRanges free;
  free.insert({grain, 20 * grain}, everything);
  EXPECT_EQ(free.take(2 * grain, 8 * grain), 8 * grain);
  EXPECT_TRUE(free.contains_exactly({grain, 8 * grain}));
  EXPECT_TRUE(free.contains_exactly({10 * grain, 20 * grain}));
}

TEST(FreeRangesTest, FindsAnAlignedPlaceBehindManyThatHaveNone)
{
  FreeRanges free;
  for (std::uint64_t index = 0; index < 20; ++index) {
    auto const start = (index * 16 + 1) * grain;
    free.insert({start, start + 2 * grain}, everything);
  }
  free.insert({401 * grain, 418 * grain}, everything);
  EXPECT_EQ(free.take(2 * grain, 16 * grain), 401 * grain + 15 * grain);
}

TEST(FreeRangesTest, JoinsNeighboursWithinTheLimitsOnly)
{
  FreeRanges free;
  FreeRanges::Range const left{0, 10 * grain};
  FreeRanges::Range const right{10 * grain, 20 * grain};
  free.insert({8 * grain, 10 * grain}, left);
  free.insert({10 * grain, 12 * grain}, right);
  EXPECT_TRUE(free.contains_exactly({8 * grain, 10 * grain}));
  free.insert({12 * grain, 14 * grain}, right);
  free.insert({5 * grain, 8 * grain}, left);
  EXPECT_TRUE(free.contains_exactly({5 * grain, 10 * grain}));
  EXPECT_TRUE(free.contains_exactly({10 * grain, 14 * grain}));
}

TEST(FreeRangesTest, TellsHowItsMemoryIsDivided)
{
  FreeRanges free;
  EXPECT_EQ(free.largest(), 0U);
  free.insert({0, 10 * grain}, {0, 10 * grain});
  free.insert({10 * grain, 25 * grain}, {10 * grain, 25 * grain});
  EXPECT_EQ(free.count(), 2U);
  EXPECT_EQ(free.largest(), 15 * grain);
  EXPECT_EQ(free.overlap({5 * grain, 20 * grain}), 15 * grain);
  free.remove({10 * grain, 25 * grain});
  EXPECT_EQ(free.count(), 1U);
  EXPECT_EQ(free.largest(), 10 * grain);
  EXPECT_EQ(free.total(), 10 * grain);
}

}  // namespace
}  // namespace datapath::testing
