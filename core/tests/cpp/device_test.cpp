// SPDX-License-Identifier: Apache-2.0
#include "streams/device.hpp"

#include "device_support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

namespace datapath::testing {
namespace {

TEST(DeviceTest, RefusesNamesThatAreNone)
{
  for (auto const* name :
       {"", "gpu", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "Null", "cuda:99999999999"}) {
    auto const error = error_of([&] { (void)Device::open(name); });
    EXPECT_EQ(error.status, DP_ERR_INVALID) << name;
    EXPECT_NE(error.message.find("null"), std::string::npos) << error.message;
  }
}

TEST(DeviceTest, OpensCudaOrSaysWhyNot)
{
  std::string reason;
  auto const device = Device::open_default(&reason);
  if (device) {
    EXPECT_TRUE(device->is_cuda());
    EXPECT_EQ(device->name(), "cuda:0");
    EXPECT_EQ(Device::open("cuda:0"), device);
  } else {
    EXPECT_FALSE(reason.empty());
    auto const error = error_of([] { (void)Device::open("cuda:0"); });
    EXPECT_EQ(error.status, DP_ERR_UNSUPPORTED);
    EXPECT_EQ(error.message, reason);
    EXPECT_EQ(status_of([] { (void)Device::open("cuda"); }), DP_ERR_UNSUPPORTED);
  }
}

TEST(DeviceTest, TheSameNameGivesTheSameLiveObject)
{
  auto const first = Device::open("null");
  EXPECT_EQ(Device::open("null"), first);
  EXPECT_EQ(std::ranges::count(Device::open_names(), "null"), 1);
}

TEST(DeviceTest, LeavesTheTableWithItsLastReference)
{
  auto device = Device::open("null");
  device      = nullptr;
  EXPECT_EQ(std::ranges::count(Device::open_names(), "null"), 0);
  EXPECT_NE(Device::open("null").get(), nullptr);
}

TEST(DeviceTest, ManyThreadsOpenAndLetGo)
{
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([] {
      for (int round = 0; round < 100; ++round) {
        auto const device = Device::open("null");
        device->synchronize(0);
      }
    });
  }
  for (auto& thread : threads) { thread.join(); }
}

TEST(DeviceTest, InheritedByAChildRefusesAndANewOneWorks)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers cannot follow threads that a forked child starts: their own locks "
                  "may be held by threads of the parent";
#endif
  auto const device = Device::open("null");
  auto const stream = device->create_stream(0);
  device->synchronize(stream);
  EXPECT_TRUE(in_child([&] {
    auto const error = error_of([&] { device->synchronize(stream); });
    if (error.status != DP_ERR_FORKED || error.message.find("fork") == std::string::npos) {
      return false;
    }
    auto const fresh = Device::open("null");
    if (fresh == device) { return false; }
    int const source = 4;
    int target       = 0;
    fresh->copy_async(address_of(&target), address_of(&source), 4, CopyKind::host_to_device, 0);
    fresh->synchronize(0);
    return target == 4;
  }));
  device->synchronize(stream);
}

TEST(DeviceTest, InheritedByAChildIsLetGoOfQuietly)
{
  auto device = Device::open("null");
  device->synchronize(device->create_stream(0));
  EXPECT_TRUE(in_child([&] {
    device = nullptr;
    return true;
  }));
}

}  // namespace
}  // namespace datapath::testing
