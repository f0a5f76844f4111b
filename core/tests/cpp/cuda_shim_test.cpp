// SPDX-License-Identifier: Apache-2.0
#include "device_support.hpp"
#include "shim/cuda.hpp"
#include "streams/device.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace datapath::testing {
namespace {

bool driver_is_mapped()
{
  std::ifstream maps{"/proc/self/maps"};
  for (std::string line; std::getline(maps, line);) {
    if (line.find("libcuda.so") != std::string::npos) { return true; }
  }
  return false;
}

TEST(CudaShimTest, PointersAreHostMemoryWithoutTouchingTheDriver)
{
  auto const mapped_before = driver_is_mapped();
  int local                = 0;
  EXPECT_EQ(cuda::pointer_ordinal(&local), -1);
  EXPECT_EQ(cuda::pointer_ordinal(nullptr), -1);
  EXPECT_EQ(driver_is_mapped(), mapped_before);
}

TEST(CudaShimTest, SaysWhyThereIsNoDriver)
{
  std::string reason;
  if (Device::open_default(&reason)) { GTEST_SKIP() << "there is a CUDA device here"; }
  auto const status = cuda::status();
  EXPECT_TRUE(status.state == cuda::State::missing || status.state == cuda::State::unusable);
  EXPECT_EQ(status.reason, reason);
  EXPECT_NE(reason.find("CUDA"), std::string::npos) << reason;
  // The answer is kept: the driver is not searched for again.
  EXPECT_EQ(error_of([] { (void)cuda::driver(); }).message, reason);
}

TEST(CudaShimTest, RefusesInAChildOfAProcessThatUsesCuda)
{
  std::string reason;
  auto const device = Device::open_default(&reason);
  if (!device) { GTEST_SKIP() << reason; }
  EXPECT_TRUE(in_child([] {
    auto const error = error_of([] { (void)cuda::driver(); });
    return error.status == DP_ERR_UNSUPPORTED && error.message.find("fork") != std::string::npos;
  }));
}

}  // namespace
}  // namespace datapath::testing
