// SPDX-License-Identifier: Apache-2.0
#include "memory/available.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace datapath::testing {
namespace {

/// A tree of the kernel's files.
class MemoryAvailableTest : public ::testing::Test {
 protected:
  MemoryAvailableTest()
  {
    auto pattern = (std::filesystem::temp_directory_path() / "available-XXXXXX").string();
    root_        = ::mkdtemp(pattern.data());
    write("proc/meminfo", "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable: 8000 kB\n");
  }
  ~MemoryAvailableTest() override { std::filesystem::remove_all(root_); }

  void write(std::string const& path, std::string const& text)
  {
    auto const whole = root_ / path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream{whole} << text;
  }

  [[nodiscard]] MemoryRoom room() const
  { return available_memory({(root_ / "proc").string(), (root_ / "cgroup").string()}); }

  std::filesystem::path root_;
};

TEST_F(MemoryAvailableTest, IsTheMachinesWithoutGroups)
{
  EXPECT_EQ(room().bytes, 8000U * 1024);
  write("proc/self/cgroup", "0::/\n");
  write("cgroup/memory.max", "max\n");
  write("cgroup/memory.current", "1000\n");
  EXPECT_EQ(room().bytes, 8000U * 1024);
}

TEST_F(MemoryAvailableTest, IsBoundedByTheGroupLessItsUseWithoutFilePages)
{
  write("proc/self/cgroup", "0::/a/b\n");
  write("cgroup/a/b/memory.max", "1000000\n");
  write("cgroup/a/b/memory.current", "400000\n");
  write("cgroup/a/b/memory.stat", "anon 5\ninactive_file 90000\nactive_file 10000\n");
  auto const found = room();
  EXPECT_EQ(found.bytes, 700'000U);
  EXPECT_NE(found.bound.find("a/b/memory.max"), std::string::npos) << found.bound;
}

TEST_F(MemoryAvailableTest, IsBoundedByGroupsAbove)
{
  write("proc/self/cgroup", "0::/a/b\n");
  write("cgroup/a/memory.max", "50000\n");
  write("cgroup/a/memory.current", "60000\n");
  write("cgroup/a/b/memory.max", "1000000\n");
  write("cgroup/a/b/memory.current", "0\n");
  EXPECT_EQ(room().bytes, 0U);
}

TEST_F(MemoryAvailableTest, LooksAtTheRootWhereTheHostsPathIsNotThere)
{
  write("proc/self/cgroup", "0::/system.slice/container\n");
  write("cgroup/memory.max", "70000\n");
  write("cgroup/memory.current", "20000\n");
  EXPECT_EQ(room().bytes, 50'000U);
}

TEST_F(MemoryAvailableTest, ReadsTheFirstVersionToo)
{
  write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/x\n0::/\n");
  write("cgroup/memory/x/memory.limit_in_bytes", "1000000\n");
  write("cgroup/memory/x/memory.usage_in_bytes", "900000\n");
  write("cgroup/memory/x/memory.stat", "inactive_file 7\ntotal_inactive_file 100000\n");
  EXPECT_EQ(room().bytes, 200'000U);
}

TEST_F(MemoryAvailableTest, KnowsThisMachine)
{
  EXPECT_GT(available_memory().bytes, 0U);
  EXPECT_FALSE(available_memory().bound.empty());
}

}  // namespace
}  // namespace datapath::testing
