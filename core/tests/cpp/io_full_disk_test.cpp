// SPDX-License-Identifier: Apache-2.0
#include "io_support.hpp"

#include <sys/mount.h>
#include <sys/resource.h>

namespace datapath::io_testing {
namespace {

constexpr std::uint64_t mib = 1U << 20U;

/// A drive of 8 MiB; only root can have one.
class SmallDrive {
 public:
  explicit SmallDrive(std::string folder) : folder_{std::move(folder)}
  { error_ = ::mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=8m") == 0 ? 0 : errno; }
  ~SmallDrive()
  {
    if (error_ == 0) { ::umount2(folder_.c_str(), MNT_DETACH); }
  }
  SmallDrive(SmallDrive const&)            = delete;
  SmallDrive& operator=(SmallDrive const&) = delete;
  [[nodiscard]] int error() const { return error_; }

 private:
  std::string folder_;
  int error_{0};
};

struct FullDiskTest : EachBackend {};

TEST_P(FullDiskTest, write_that_fills_the_drive_is_an_out_of_space_error_and_the_rest_stays_good)
{
  SmallDrive const drive{folder_.path()};
  if (drive.error() != 0) { GTEST_SKIP() << "cannot mount tmpfs: errno " << drive.error(); }
  auto const owner = engine();
  auto const first = owner->open(folder_.file("first"), "w+");
  Memory const kept{2 * mib};
  kept.fill_pattern(1);
  (void)write(*first, kept, 0);
  auto const second = owner->open(folder_.file("second"), "w+");
  Memory const large{16 * mib};
  auto const error = error_of([&] { (void)write(*second, large, 0); });
  EXPECT_EQ(error.status, DP_ERR_NO_SPACE);
  EXPECT_EQ(error.os_errno, ENOSPC);
  EXPECT_EQ(error.path, folder_.file("second"));
  Memory const in{2 * mib};
  EXPECT_EQ(read(*first, in, 0), in.size());
  EXPECT_TRUE(in == kept);
  // Room again after the space is freed.
  second->truncate(0);
  EXPECT_EQ(write(*second, kept, 0), kept.size());
}

TEST_P(FullDiskTest, volume_on_a_small_drive_is_full_before_the_drive_is)
{
  SmallDrive const drive{folder_.path()};
  if (drive.error() != 0) { GTEST_SKIP() << "cannot mount tmpfs: errno " << drive.error(); }
  auto const space = make_ref<Volume>(
    std::vector{folder_.path()},
    VolumeOptions{.capacity = 64 * mib, .segment_bytes = mib, .reserve_bytes = 2 * mib},
    engine());
  std::vector<Ref<Extent>> extents;
  auto const error = error_of([&] {
    while (true) { extents.push_back(space->allocate(512U << 10U)); }
  });
  EXPECT_EQ(error.status, DP_ERR_NO_SPACE);
  EXPECT_NE(error.message.find("volume is full"), std::string::npos) << error.message;
  EXPECT_EQ(extents.size(), 12U);
  EXPECT_GE(std::filesystem::space(folder_.path()).available, 2 * mib);
  // What was granted can be written to the last byte.
  Memory const out{512U << 10U};
  for (auto const& extent : extents) { EXPECT_EQ(write(*extent, out, 0), out.size()); }
  extents.pop_back();
  extents.push_back(space->allocate(512U << 10U));
}

TEST_P(FullDiskTest, drive_that_others_fill_up_is_a_full_volume_and_no_lost_extent)
{
  SmallDrive const drive{folder_.path()};
  if (drive.error() != 0) { GTEST_SKIP() << "cannot mount tmpfs: errno " << drive.error(); }
  auto const owner = engine();
  auto const space =
    make_ref<Volume>(std::vector{folder_.path()},
                     VolumeOptions{.capacity = 64 * mib, .segment_bytes = mib, .reserve_bytes = 1},
                     owner);
  auto extent = space->allocate(mib);
  Memory const filler{16 * mib};
  (void)error_of([&] { (void)write(*owner->open(folder_.file("filler"), "w"), filler, 0); });
  EXPECT_EQ(error_of([&] { (void)space->allocate(2 * mib); }).status, DP_ERR_NO_SPACE);
  Memory const out{mib};
  Memory const in{mib};
  out.fill_pattern(2);
  EXPECT_EQ(write(*extent, out, 0), mib);
  EXPECT_EQ(read(*extent, in, 0), mib);
  EXPECT_TRUE(in == out);
}

TEST_P(FullDiskTest, file_size_limit_is_an_error_and_kills_nobody)
{
  SKIP_WHERE_CHILDREN_HAVE_NO_THREADS();
  auto const code = run_in_child([&] {
    rlimit limit{};
    limit.rlim_cur = limit.rlim_max = mib;
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) { return 1; }
    auto const owner = engine();
    auto const file  = owner->open(folder_.file("limited"), "w+");
    Memory const fits{mib};
    if (write(*file, fits, 0) != mib) { return 2; }
    auto const error = error_of([&] { (void)write(*file, fits, mib); });
    if (error.status != DP_ERR_IO || error.os_errno != EFBIG) { return 3; }
    if (error_of([&] { file->truncate(2 * mib); }).os_errno != EFBIG) { return 4; }
    auto const space = make_ref<Volume>(
      std::vector{folder_.path()}, VolumeOptions{.capacity = 8 * mib, .reserve_bytes = 1}, owner);
    auto const full = error_of([&] { (void)space->allocate(4 * mib); });
    if (full.status != DP_ERR_NO_SPACE) { return 5; }
    if (full.message.find("EFBIG") == std::string::npos) { return 6; }
    return 0;
  });
  EXPECT_EQ(code, 0);
}

TEST_P(FullDiskTest, faulty_drive_full_in_the_middle_of_a_striped_write_fails_that_extent_only)
{
  auto const owner = faulty_engine("write:enospc@after=3,times=2");
  auto const space = make_ref<Volume>(
    std::vector{folder_.path(), folder_.path()},
    VolumeOptions{.capacity = 64 * mib, .stripe_bytes = 256U << 10U, .reserve_bytes = 1},
    owner);
  auto bad = space->allocate(8 * mib);
  Memory const out{8 * mib};
  Memory const in{8 * mib};
  out.fill_pattern(3);
  EXPECT_EQ(error_of([&] { (void)write(*bad, out, 0); }).status, DP_ERR_NO_SPACE);
  EXPECT_EQ(write(*bad, out, 0), out.size());
  EXPECT_EQ(read(*bad, in, 0), in.size());
  EXPECT_TRUE(in == out);
}

FOR_EACH_BACKEND(FullDiskTest);

}  // namespace
}  // namespace datapath::io_testing
