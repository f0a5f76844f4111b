// SPDX-License-Identifier: Apache-2.0
#include "streams/numa.hpp"

#include <gtest/gtest.h>

namespace datapath::testing {
namespace {

TEST(NumaTest, RefusesWhatIsNoProcessorList)
{
  for (auto const* text : {"a", "1-", "1,,2", "-3", "1 2", "99999999"}) {
    EXPECT_FALSE(parse_cpu_list(text)) << text;
  }
}

TEST(NumaTest, ReadsProcessorLists)
{
  auto const cpus = parse_cpu_list("0-2,5,7-8\n");
  ASSERT_TRUE(cpus);
  EXPECT_EQ(CPU_COUNT(&*cpus), 6);
  for (std::size_t const cpu : {0U, 1U, 2U, 5U, 7U, 8U}) {
    EXPECT_TRUE(CPU_ISSET(cpu, &*cpus)) << cpu;
  }
  auto const none = parse_cpu_list("");
  ASSERT_TRUE(none);
  EXPECT_EQ(CPU_COUNT(&*none), 0);
}

TEST(NumaTest, KnowsNothingOfNodesAndDevicesThatAreNotThere)
{
  EXPECT_FALSE(cpus_of_node(-1));
  EXPECT_FALSE(cpus_of_node(100'000));
  EXPECT_EQ(numa_node_of_pci("ffffffff:ff:1f.7"), -1);
}

}  // namespace
}  // namespace datapath::testing
