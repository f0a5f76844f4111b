// SPDX-License-Identifier: Apache-2.0
#include "io/file_ranges.hpp"
#include "io_support.hpp"

#include <map>
#include <random>

namespace datapath::io_testing {
namespace {

TEST(FileRangesTest, freeing_twice_is_an_internal_error)
{
  FileRanges ranges;
  ranges.add({0, 100});
  for (FileRange const again : {FileRange{0, 1}, FileRange{99, 10}, FileRange{50, 10}}) {
    EXPECT_EQ(error_of([&] { ranges.add(again); }).status, DP_ERR_INTERNAL);
  }
  EXPECT_EQ(ranges.nbytes(), 100U);
}

TEST(FileRangesTest, neighbours_become_one)
{
  FileRanges ranges;
  ranges.add({0, 10});
  ranges.add({20, 10});
  EXPECT_EQ(ranges.count(), 2U);
  ranges.add({10, 10});
  EXPECT_EQ(ranges.count(), 1U);
  EXPECT_EQ(ranges.largest(), 30U);
  EXPECT_EQ(ranges.nbytes_before(30), 30U);
  EXPECT_EQ(ranges.nbytes_before(40), 0U);
}

TEST(FileRangesTest, smallest_range_that_fits_is_taken)
{
  FileRanges ranges;
  ranges.add({0, 100});
  ranges.add({200, 10});
  EXPECT_EQ(ranges.take_fit(10)->offset, 200U);
  EXPECT_EQ(ranges.take_fit(10)->offset, 0U);
  EXPECT_FALSE(ranges.take_fit(91).has_value());
  EXPECT_EQ(ranges.take_largest(1000)->nbytes, 90U);
  EXPECT_FALSE(ranges.take_largest(1).has_value());
}

/// Bytes of live extents, by drive and offset; adding checks for overlap.
class Claims {
 public:
  [[nodiscard]] bool claim(ExtentRun const& run)
  {
    auto& taken     = by_drive_[run.drive];
    auto const next = taken.lower_bound(run.offset);
    if (next != taken.end() && next->first < run.offset + run.nbytes) { return false; }
    if (next != taken.begin()) {
      auto const previous = std::prev(next);
      if (previous->first + previous->second > run.offset) { return false; }
    }
    taken.emplace(run.offset, run.nbytes);
    return true;
  }
  void drop(ExtentRun const& run) { by_drive_[run.drive].erase(run.offset); }

 private:
  std::map<Drive*, std::map<std::uint64_t, std::uint64_t>> by_drive_;
};

TEST(VolumeSpaceTest, hundred_thousand_allocations_and_frees_never_overlap)
{
  TemporaryFolder const folder{
    std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : TemporaryFolder::default_parent()};
  EngineOptions options;
  options.backend   = "threads";
  auto const engine = make_ref<Engine>(options);
  std::vector<std::unique_ptr<Drive>> drives;
  for (std::size_t i = 0; i < 3; ++i) {
    drives.push_back(std::make_unique<Drive>(
      folder.path(), false, DirectMode::automatic, engine->backend_for_drive(i)));
  }
  SpaceLimits limits;
  limits.capacity      = 32U << 20U;
  limits.segment_bytes = 1U << 20U;
  limits.stripe_bytes  = 64U << 10U;
  VolumeSpace space{std::move(drives), limits};
  struct Live {
    std::vector<ExtentRun> runs;
    std::uint64_t nbytes;
  };
  std::vector<Live> live;
  Claims claims;
  std::mt19937_64 random{20261130};
  std::uint64_t requested = 0;
  std::uint64_t allocated = 0;
  unsigned full           = 0;
  for (int step = 0; step < 100'000; ++step) {
    if (live.empty() || random() % 100 < 55) {
      auto const nbytes = random() % (random() % 10 == 0 ? 1'000'000 : 30'000);
      auto const grains = (nbytes + 4095) / 4096 * 4096;
      std::vector<ExtentRun> runs;
      auto const error = error_of([&] { runs = space.allocate(nbytes); });
      if (error.status == DP_ERR_NO_SPACE) {
        // Never while there is room, however scattered.
        ASSERT_GT(grains, limits.capacity - allocated) << error.message;
        ++full;
        for (int i = 0; i < 20 && !live.empty(); ++i) {
          auto const at = random() % live.size();
          std::swap(live[at], live.back());
          for (auto const& run : live.back().runs) {
            claims.drop(run);
            allocated -= run.nbytes;
          }
          space.give_back(live.back().runs, live.back().nbytes);
          requested -= live.back().nbytes;
          live.pop_back();
        }
        continue;
      }
      ASSERT_EQ(error.status, DP_OK) << error.message;
      std::uint64_t logical = 0;
      for (auto const& run : runs) {
        ASSERT_EQ(run.logical, logical);
        ASSERT_EQ(run.offset % 4096, 0U);
        ASSERT_LE(run.offset + run.nbytes, run.drive->backed());
        ASSERT_TRUE(claims.claim(run)) << "overlap at step " << step;
        logical += run.nbytes;
      }
      ASSERT_EQ(logical, grains);
      requested += nbytes;
      allocated += grains;
      live.push_back({std::move(runs), nbytes});
    } else {
      auto const at = random() % live.size();
      std::swap(live[at], live.back());
      for (auto const& run : live.back().runs) {
        claims.drop(run);
        allocated -= run.nbytes;
      }
      space.give_back(live.back().runs, live.back().nbytes);
      requested -= live.back().nbytes;
      live.pop_back();
    }
    if (step % 1000 == 0) {
      auto const counts = space.counts();
      ASSERT_EQ(counts.requested, requested);
      ASSERT_EQ(counts.allocated, allocated);
      ASSERT_EQ(counts.extents, live.size());
      ASSERT_LE(counts.backed, limits.capacity);
      ASSERT_LE(counts.allocated, counts.backed);
    }
  }
  EXPECT_GT(full, 0U);
  for (auto const& each : live) { space.give_back(each.runs, each.nbytes); }
  auto const counts = space.counts();
  EXPECT_EQ(counts.allocated, 0U);
  EXPECT_EQ(counts.requested, 0U);
  EXPECT_EQ(counts.extents, 0U);
  // All of it is in one piece again: three extents as large as the drives' files fit.
  auto const whole = space.allocate(limits.capacity);
  EXPECT_FALSE(whole.empty());
}

}  // namespace
}  // namespace datapath::io_testing
