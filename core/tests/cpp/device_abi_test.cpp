// SPDX-License-Identifier: Apache-2.0
#include "device_support.hpp"

#include <datapath/datapath.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace datapath::testing {
namespace {

std::string last_message()
{
  dp_error_info info{};
  info.size = sizeof info;
  dp_last_error(&info);
  return info.message;
}

class DeviceAbiTest : public ::testing::Test {
 protected:
  dp_device* device_{nullptr};

  void SetUp() override { ASSERT_EQ(dp_device_open("null", &device_), DP_OK); }
  ~DeviceAbiTest() override { dp_device_release(device_); }
};

TEST_F(DeviceAbiTest, RefusesMissingArguments)
{
  dp_device* other = nullptr;
  EXPECT_EQ(dp_device_open(nullptr, &other), DP_ERR_INVALID);
  EXPECT_EQ(dp_device_open("null", nullptr), DP_ERR_INVALID);
  EXPECT_EQ(dp_device_open("nothing", &other), DP_ERR_INVALID);
  EXPECT_NE(last_message().find("nothing"), std::string::npos);
  EXPECT_EQ(dp_device_get_info(nullptr, nullptr), DP_ERR_INVALID);
  EXPECT_EQ(dp_stream_create(device_, 0, nullptr), DP_ERR_INVALID);
  EXPECT_EQ(dp_stream_synchronize(nullptr, 0), DP_ERR_INVALID);
  EXPECT_EQ(dp_device_allocate(device_, 1, nullptr), DP_ERR_INVALID);
  std::uint64_t address = 0;
  EXPECT_EQ(dp_device_allocate(device_, 0, &address), DP_ERR_INVALID);
  EXPECT_EQ(dp_device_free(device_, 1), DP_ERR_CUDA);
  EXPECT_EQ(dp_pointer_device(nullptr, nullptr), DP_ERR_INVALID);
  dp_device_retain(nullptr);
  dp_device_release(nullptr);
}

TEST_F(DeviceAbiTest, TellsWhatItIs)
{
  dp_device_info info{};
  EXPECT_EQ(dp_device_get_info(device_, &info), DP_ERR_INVALID) << "the size is not set";
  info.size = sizeof info;
  ASSERT_EQ(dp_device_get_info(device_, &info), DP_OK);
  EXPECT_STREQ(info.name, "null");
  EXPECT_EQ(info.is_cuda, 0);
  EXPECT_EQ(info.numa_node, -1);
}

TEST_F(DeviceAbiTest, MakesStreamsAndCaptures)
{
  dp_stream stream   = 0;
  std::int32_t state = -1;
  ASSERT_EQ(dp_stream_create(device_, 5, &stream), DP_OK);
  ASSERT_EQ(dp_null_capture(device_, stream, 1), DP_OK);
  ASSERT_EQ(dp_stream_is_capturing(device_, stream, &state), DP_OK);
  EXPECT_EQ(state, 1);
  EXPECT_EQ(dp_stream_synchronize(device_, stream), DP_ERR_CUDA);
  ASSERT_EQ(dp_null_capture(device_, stream, 0), DP_OK);
  EXPECT_EQ(dp_stream_synchronize(device_, stream), DP_OK);
  EXPECT_EQ(dp_null_set_copy_delay(device_, 1), DP_OK);
  EXPECT_EQ(dp_null_set_copy_delay(device_, 0), DP_OK);
  EXPECT_EQ(dp_stream_destroy(device_, stream), DP_OK);
  EXPECT_EQ(dp_stream_synchronize(device_, stream), DP_ERR_INVALID);
}

TEST_F(DeviceAbiTest, AllocatesAndKnowsHostMemory)
{
  std::uint64_t address = 0;
  ASSERT_EQ(dp_device_allocate(device_, 100, &address), DP_OK);
  std::int32_t ordinal = 7;
  EXPECT_EQ(dp_pointer_device(reinterpret_cast<void*>(address), &ordinal), DP_OK);
  EXPECT_EQ(ordinal, -1);
  EXPECT_EQ(dp_device_free(device_, address), DP_OK);
  EXPECT_EQ(dp_device_free(device_, address), DP_ERR_CUDA);
}

}  // namespace
}  // namespace datapath::testing
