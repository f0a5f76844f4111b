// SPDX-License-Identifier: Apache-2.0
/// @file
/// The scheduler as a C program sees it: handles, statuses, owners, extents.
#include "scheduler_support.hpp"

#include <datapath/datapath.h>

namespace datapath::testing {
namespace {

class SchedulerAbiTest : public ::testing::Test {
 protected:
  SchedulerAbiTest()
  {
    EXPECT_EQ(dp_device_open("null", &device), DP_OK);
    dp_scheduler_options options{};
    options.size        = sizeof(options);
    options.chunk_bytes = 64 * KiB;
    EXPECT_EQ(dp_scheduler_create(device, &options, &scheduler), DP_OK);
  }
  ~SchedulerAbiTest() override
  {
    EXPECT_EQ(dp_scheduler_close(scheduler), DP_OK);
    dp_scheduler_release(scheduler);
    dp_device_release(device);
  }

  static dp_place host(void const* pointer)
  {
    dp_place place{};
    place.kind    = DP_HOST;
    place.address = reinterpret_cast<std::uint64_t>(pointer);
    return place;
  }
  static dp_place on_device(std::uint64_t address)
  {
    dp_place place{};
    place.kind    = DP_DEVICE;
    place.address = address;
    return place;
  }
  static dp_place in(dp_extent* extent, std::uint64_t offset = 0)
  {
    dp_place place{};
    place.kind   = DP_EXTENT;
    place.extent = extent;
    place.offset = offset;
    return place;
  }
  static std::string last_message()
  {
    dp_error_info info{};
    info.size = sizeof(info);
    dp_last_error(&info);
    return info.message;
  }
  std::uint64_t moved(dp_place destination, dp_place source, std::uint64_t nbytes)
  {
    dp_ticket* ticket{nullptr};
    EXPECT_EQ(dp_transfer(scheduler, &destination, &source, nbytes, nullptr, &ticket), DP_OK)
      << last_message();
    std::uint64_t count{0};
    EXPECT_EQ(dp_ticket_result(ticket, UINT64_MAX, &count), DP_OK) << last_message();
    dp_ticket_release(ticket);
    return count;
  }

  dp_device* device{nullptr};
  dp_scheduler* scheduler{nullptr};
};

TEST_F(SchedulerAbiTest, NullArgumentsAreRefusedAndTheOwnerIsReleasedAllTheSame)
{
  OwnerProbe probe;
  dp_owner const owner{[](void* context) {
                         auto& count = *static_cast<std::atomic<int>*>(context);
                         count.fetch_add(1);
                       },
                       nullptr};
  std::atomic<int> released{0};
  dp_transfer_options options{};
  options.size          = sizeof(options);
  options.owner         = owner;
  options.owner.context = &released;
  dp_ticket* ticket{nullptr};
  auto const place = host(&released);
  EXPECT_EQ(dp_transfer(nullptr, &place, &place, 1, &options, &ticket), DP_ERR_INVALID);
  EXPECT_EQ(dp_transfer(scheduler, nullptr, &place, 1, &options, &ticket), DP_ERR_INVALID);
  EXPECT_EQ(dp_transfer(scheduler, &place, nullptr, 1, &options, &ticket), DP_ERR_INVALID);
  EXPECT_EQ(dp_transfer(scheduler, &place, &place, 1, &options, nullptr), DP_ERR_INVALID);
  options.after_ticket_count = 1;
  EXPECT_EQ(dp_transfer(scheduler, &place, &place, 1, &options, &ticket), DP_ERR_INVALID);
  EXPECT_EQ(released.load(), 5);
  EXPECT_EQ(ticket, nullptr);

  dp_scheduler* made{nullptr};
  EXPECT_EQ(dp_scheduler_create(nullptr, nullptr, &made), DP_ERR_INVALID);
  EXPECT_EQ(dp_scheduler_create(device, nullptr, nullptr), DP_ERR_INVALID);
  EXPECT_EQ(dp_scheduler_close(nullptr), DP_ERR_INVALID);
  EXPECT_EQ(dp_scheduler_stream(scheduler, DP_LANE_H2D, nullptr), DP_ERR_INVALID);
  dp_scheduler_release(nullptr);
}

TEST_F(SchedulerAbiTest, BytesGoRoundThroughTheDeviceAndAnExtent)
{
  ScratchDirectory const scratch;
  auto const* const directory = scratch.path().c_str();
  dp_volume_options options{};
  options.size          = sizeof(options);
  options.capacity      = 8 * MiB;
  options.reserve_bytes = 1;
  dp_volume* volume{nullptr};
  ASSERT_EQ(dp_volume_create(&directory, 1, &options, &volume), DP_OK) << last_message();
  auto const nbytes = 5 * 64 * KiB + 99;
  dp_extent* extent{nullptr};
  ASSERT_EQ(dp_volume_allocate(volume, nbytes, &extent), DP_OK) << last_message();
  auto const wanted = random_bytes(nbytes, 1);
  Bytes back(nbytes);
  std::uint64_t address{0};
  ASSERT_EQ(dp_device_allocate(device, nbytes, &address), DP_OK);

  EXPECT_EQ(moved(on_device(address), host(wanted.data()), nbytes), nbytes);
  EXPECT_EQ(moved(in(extent), on_device(address), nbytes), nbytes);
  EXPECT_EQ(moved(host(back.data()), in(extent), nbytes), nbytes);
  EXPECT_EQ(back, wanted);
  // Out of the middle, and to where it was.
  EXPECT_EQ(moved(on_device(address), in(extent, 1000), 70'000), 70'000U);
  EXPECT_EQ(moved(in(extent, 1000), on_device(address), 70'000), 70'000U);
  EXPECT_EQ(moved(host(back.data()), in(extent), nbytes), nbytes);
  EXPECT_EQ(back, wanted);

  auto const beyond = in(extent, nbytes - 10);
  auto const target = host(back.data());
  dp_ticket* ticket{nullptr};
  EXPECT_EQ(dp_transfer(scheduler, &target, &beyond, 11, nullptr, &ticket), DP_ERR_INVALID);
  EXPECT_NE(last_message().find("past its extent"), std::string::npos);

  EXPECT_EQ(dp_device_free(device, address), DP_OK);
  EXPECT_EQ(dp_extent_free(extent), DP_OK);
  auto const freed = in(extent);
  EXPECT_EQ(dp_transfer(scheduler, &target, &freed, 10, nullptr, &ticket), DP_OK);
  EXPECT_EQ(dp_ticket_result(ticket, UINT64_MAX, nullptr), DP_ERR_CLOSED);
  dp_ticket_release(ticket);
  dp_extent_release(extent);
  EXPECT_EQ(dp_volume_close(volume), DP_OK);
  dp_volume_release(volume);
}

TEST_F(SchedulerAbiTest, AStreamFollowsATicketAndATimeoutIsAStatus)
{
  dp_stream stream{0};
  ASSERT_EQ(dp_stream_create(device, 0, &stream), DP_OK);
  EXPECT_EQ(dp_null_set_copy_delay(device, 30'000'000), DP_OK);
  Bytes const pageable(200'000);
  std::uint64_t address{0};
  ASSERT_EQ(dp_device_allocate(device, pageable.size(), &address), DP_OK);
  auto const destination = on_device(address);
  auto const source      = host(pageable.data());
  dp_ticket* ticket{nullptr};
  ASSERT_EQ(dp_transfer(scheduler, &destination, &source, pageable.size(), nullptr, &ticket),
            DP_OK);
  EXPECT_EQ(dp_ticket_wait_stream(ticket, device, stream, 1, 0), DP_OK);
  EXPECT_EQ(dp_ticket_wait_stream(ticket, device, stream, 0, UINT64_MAX), DP_OK);
  EXPECT_EQ(dp_stream_synchronize(device, stream), DP_OK);
  EXPECT_EQ(dp_null_set_copy_delay(device, 0), DP_OK);
  EXPECT_EQ(dp_ticket_result(ticket, UINT64_MAX, nullptr), DP_OK);
  dp_ticket_release(ticket);
  EXPECT_EQ(dp_device_free(device, address), DP_OK);
  EXPECT_EQ(dp_stream_destroy(device, stream), DP_OK);
}

TEST_F(SchedulerAbiTest, CountsFillACallersOlderStruct)
{
  dp_lane_stats stats{};
  stats.size  = 16;
  stats.bytes = 77;
  EXPECT_EQ(dp_scheduler_lane_stats(scheduler, DP_LANE_WRITE, &stats), DP_OK);
  EXPECT_EQ(stats.bytes, 77U);
  char* json{nullptr};
  EXPECT_EQ(dp_scheduler_describe(scheduler, &json), DP_OK);
  EXPECT_NE(std::string{json}.find("\"lane\":\"h2d\""), std::string::npos);
  dp_string_free(json);
}

}  // namespace
}  // namespace datapath::testing
