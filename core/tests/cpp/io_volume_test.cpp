// SPDX-License-Identifier: Apache-2.0
#include "io_support.hpp"

#include <thread>

namespace datapath::io_testing {
namespace {

constexpr std::uint64_t mib = 1U << 20U;

struct VolumeTest : EachBackend {
  [[nodiscard]] std::vector<std::string> folders(std::size_t count)
  {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < count; ++i) {
      names.push_back(folder_.file("drive" + std::to_string(i)));
      std::filesystem::create_directory(names.back());
    }
    return names;
  }
  [[nodiscard]] Ref<Volume> volume(std::size_t drives, VolumeOptions options)
  {
    if (options.reserve_bytes == 0) { options.reserve_bytes = mib; }
    return make_ref<Volume>(folders(drives), options, engine());
  }
  [[nodiscard]] static std::size_t files_in(std::string const& folder)
  {
    std::size_t count = 0;
    for (auto const& entry : std::filesystem::recursive_directory_iterator{folder}) {
      count += entry.is_regular_file() ? 1U : 0U;
    }
    return count;
  }
};

TEST_P(VolumeTest, refuses_no_directory_a_missing_one_and_no_capacity)
{
  auto const missing = folder_.file("missing");
  EXPECT_EQ(error_of([&] {
              (void)make_ref<Volume>(std::vector<std::string>{}, VolumeOptions{mib}, engine());
            }).status,
            DP_ERR_INVALID);
  auto const error =
    error_of([&] { (void)make_ref<Volume>(std::vector{missing}, VolumeOptions{mib}, engine()); });
  EXPECT_EQ(error.status, DP_ERR_IO);
  EXPECT_EQ(error.os_errno, ENOENT);
  EXPECT_EQ(error.path, missing);
  EXPECT_EQ(error_of([&] { (void)volume(1, {}); }).status, DP_ERR_INVALID);
}

TEST_P(VolumeTest, full_volume_says_so_with_numbers_and_a_remedy)
{
  auto const space = volume(2, {.capacity = 4 * mib});
  auto const all   = space->allocate(4 * mib);
  auto const error = error_of([&] { (void)space->allocate(5000); });
  EXPECT_EQ(error.status, DP_ERR_NO_SPACE);
  EXPECT_EQ(error.os_errno, ENOSPC);
  for (char const* const word :
       {"volume is full", "5000 bytes", "capacity of 4194304", "raise the capacity"}) {
    EXPECT_NE(error.message.find(word), std::string::npos) << word << " in " << error.message;
  }
  EXPECT_EQ(error_of([&] { (void)space->allocate(UINT64_MAX); }).status, DP_ERR_NO_SPACE);
}

TEST_P(VolumeTest, reserve_of_the_drive_is_left_alone)
{
  auto const space = volume(1, {.capacity = 1ULL << 40U, .reserve_bytes = 1ULL << 60U});
  auto const error = error_of([&] { (void)space->allocate(4096); });
  EXPECT_EQ(error.status, DP_ERR_NO_SPACE);
  EXPECT_NE(error.message.find("in reserve"), std::string::npos) << error.message;
  EXPECT_EQ(space->stats().backed, 0U);
}

TEST_P(VolumeTest, capacity_is_used_to_the_last_grain_whatever_the_sizes)
{
  // In memory: thousands of scattered blocks take a file system with discard half a minute to free.
  if (!std::filesystem::is_directory("/dev/shm")) { GTEST_SKIP() << "no /dev/shm"; }
  TemporaryFolder const memory{"/dev/shm"};
  VolumeOptions const options{
    .capacity = 6 * mib, .segment_bytes = mib, .stripe_bytes = 64U << 10U, .reserve_bytes = 1};
  auto const space = make_ref<Volume>(std::vector(3, memory.path()), options, engine());
  std::vector<Ref<Extent>> extents;
  // Holes of one grain: what is free is scattered.
  for (std::uint64_t i = 0; i < 6 * mib / 4096; ++i) { extents.push_back(space->allocate(4096)); }
  EXPECT_EQ(error_of([&] { (void)space->allocate(1); }).status, DP_ERR_NO_SPACE);
  for (std::size_t i = 0; i < extents.size(); i += 2) { extents[i] = nullptr; }
  auto large = space->allocate(3 * mib);
  EXPECT_EQ(space->stats().allocated, 6 * mib);
  EXPECT_EQ(space->stats().backed, 6 * mib);
  Memory const out{3 * mib};
  Memory const in{3 * mib};
  out.fill_pattern(1);
  EXPECT_EQ(write(*large, out, 0), 3 * mib);
  EXPECT_EQ(read(*large, in, 0), 3 * mib);
  EXPECT_TRUE(in == out);
}

TEST_P(VolumeTest, striped_extent_gives_back_what_was_written_at_any_offset)
{
  auto const space =
    volume(3, {.capacity = 64 * mib, .segment_bytes = mib, .stripe_bytes = 256U << 10U});
  auto const nbytes = 5 * mib + 4321;
  auto extent       = space->allocate(nbytes);
  EXPECT_EQ(extent->nbytes(), nbytes);
  Memory const out{nbytes, 3};
  out.fill_pattern(2);
  EXPECT_EQ(write(*extent, out, 0), nbytes);
  for (std::uint64_t const offset : {0ULL, 1ULL, 262143ULL, 262144ULL, 1000000ULL, 5242880ULL}) {
    Memory const in{std::min<std::uint64_t>(300'001, nbytes - offset), 1};
    EXPECT_EQ(read(*extent, in, offset), in.size());
    EXPECT_TRUE(std::equal(in.data(), in.data() + in.size(), out.data() + offset)) << offset;
  }
  auto const stats = space->stats();
  EXPECT_EQ(stats.requested, nbytes);
  EXPECT_EQ(stats.allocated, (nbytes + 4095) / 4096 * 4096);
  EXPECT_EQ(stats.extents, 1U);
  EXPECT_EQ(stats.drives, 3U);
  EXPECT_EQ(stats.bytes_written, nbytes);
}

TEST_P(VolumeTest, large_extents_use_all_drives_and_small_ones_take_turns)
{
  auto const space = volume(2, {.capacity = 64 * mib, .segment_bytes = mib, .stripe_bytes = mib});
  auto const large = space->allocate(8 * mib);
  auto const after_large = space->describe();
  EXPECT_EQ(after_large.find("\"backed\":0,\"free\""), std::string::npos) << after_large;
  auto const other       = volume(2, {.capacity = 64 * mib, .segment_bytes = mib});
  auto const one         = other->allocate(4096);
  auto const two         = other->allocate(4096);
  auto const after_small = other->describe();
  EXPECT_EQ(after_small.find("\"backed\":0,\"free\""), std::string::npos) << after_small;
}

TEST_P(VolumeTest, zero_bytes_are_an_extent_too)
{
  auto const space = volume(1, {.capacity = mib});
  auto extent      = space->allocate(0);
  EXPECT_EQ(extent->nbytes(), 0U);
  EXPECT_EQ(result(extent->write({}, Owner{})), 0U);
  EXPECT_EQ(space->stats().extents, 1U);
  EXPECT_EQ(space->stats().backed, 0U);
}

TEST_P(VolumeTest, request_past_the_end_of_an_extent_is_invalid)
{
  auto const space = volume(1, {.capacity = mib});
  auto extent      = space->allocate(5000);
  Memory const one{1};
  Memory const all{5001};
  EXPECT_EQ(error_of([&] { (void)read(*extent, one, 5000); }).status, DP_ERR_INVALID);
  EXPECT_EQ(error_of([&] { (void)write(*extent, all, 0); }).status, DP_ERR_INVALID);
  EXPECT_EQ(error_of([&] { (void)read(*extent, one, UINT64_MAX); }).status, DP_ERR_INVALID);
}

TEST_P(VolumeTest, freed_extent_refuses_and_its_bytes_come_back_at_once)
{
  auto const space = volume(1, {.capacity = mib});
  auto extent      = space->allocate(mib);
  extent->free();
  extent->free();
  EXPECT_EQ(space->stats().allocated, 0U);
  Memory const one{1};
  EXPECT_EQ(error_of([&] { (void)read(*extent, one, 0); }).status, DP_ERR_CLOSED);
  auto const again = space->allocate(mib);
  extent           = nullptr;
  EXPECT_EQ(space->stats().allocated, mib);
}

TEST_P(VolumeTest, free_waits_for_requests_in_flight)
{
  EngineOptions options;
  options.faults   = "write:slow@ms=300";
  auto const space = make_ref<Volume>(
    folders(1), VolumeOptions{.capacity = mib, .reserve_bytes = 1}, engine(options));
  auto extent = space->allocate(mib);
  Memory const out{mib};
  out.fill_pattern(3);
  auto const one    = request(out, 0);
  auto const ticket = extent->write({&one, 1}, Owner{});
  extent->free();
  EXPECT_EQ(space->stats().allocated, mib);
  EXPECT_EQ(error_of([&] { (void)space->allocate(4096); }).status, DP_ERR_NO_SPACE);
  EXPECT_EQ(result(ticket), mib);
  // The ticket ended: so the bytes are back.
  EXPECT_EQ(space->stats().allocated, 0U);
}

TEST_P(VolumeTest, last_reference_gives_bytes_back_after_requests_in_flight)
{
  EngineOptions options;
  options.faults   = "write:slow@ms=200";
  auto const space = make_ref<Volume>(
    folders(1), VolumeOptions{.capacity = mib, .reserve_bytes = 1}, engine(options));
  auto extent = space->allocate(mib);
  Memory const out{mib};
  out.fill_pattern(3);
  auto const one    = request(out, 0);
  auto const ticket = extent->write({&one, 1}, Owner{});
  extent            = nullptr;
  EXPECT_EQ(space->stats().extents, 1U);
  EXPECT_EQ(result(ticket), mib);
  // The last references are gone and the tickets have ended: so the bytes are back.
  EXPECT_EQ(space->stats().extents, 0U);
  EXPECT_EQ(space->stats().allocated, 0U);
}

TEST_P(VolumeTest, files_have_no_name_unless_kept_and_none_after_close)
{
  auto const unnamed = volume(2, {.capacity = 8 * mib});
  auto const extent  = unnamed->allocate(mib);
  EXPECT_EQ(files_in(folder_.path()), 0U);
  auto const kept      = volume(2, {.capacity = 8 * mib, .keep_files = true});
  auto const extent_of = kept->allocate(mib);
  EXPECT_EQ(files_in(folder_.path()), 2U);
  for (auto const& entry : std::filesystem::recursive_directory_iterator{folder_.path()}) {
    if (entry.is_regular_file()) {
      EXPECT_EQ(entry.status().permissions(),
                std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    }
  }
  kept->close();
  EXPECT_EQ(files_in(folder_.path()), 0U);
}

TEST_P(VolumeTest, truncated_file_of_a_volume_is_an_error_and_no_short_read)
{
  auto const space = volume(1, {.capacity = mib, .keep_files = true});
  auto extent      = space->allocate(mib);
  Memory const out{mib};
  out.fill_pattern(4);
  (void)write(*extent, out, 0);
  for (auto const& entry : std::filesystem::recursive_directory_iterator{folder_.path()}) {
    if (entry.is_regular_file()) { std::filesystem::resize_file(entry.path(), 10'000); }
  }
  Memory const in{mib};
  auto const error = error_of([&] { (void)read(*extent, in, 0); });
  EXPECT_EQ(error.status, DP_ERR_IO);
  EXPECT_EQ(error.os_errno, EIO);
  EXPECT_NE(error.message.find("truncated"), std::string::npos) << error.message;
}

TEST_P(VolumeTest, closed_volume_refuses_and_lets_extents_go)
{
  auto const space = volume(1, {.capacity = mib});
  auto extent      = space->allocate(4096);
  space->close();
  space->close();
  Memory const one{1};
  EXPECT_EQ(error_of([&] { (void)read(*extent, one, 0); }).status, DP_ERR_CLOSED);
  EXPECT_EQ(error_of([&] { (void)space->allocate(1); }).status, DP_ERR_CLOSED);
  extent = nullptr;
  EXPECT_EQ(space->stats().extents, 0U);
}

TEST_P(VolumeTest, extent_keeps_the_volume_and_its_engine)
{
  auto extent = volume(2, {.capacity = 8 * mib, .stripe_bytes = 4096})->allocate(100'000);
  Memory const out{100'000};
  Memory const in{100'000};
  out.fill_pattern(5);
  EXPECT_EQ(write(*extent, out, 0), out.size());
  EXPECT_EQ(read(*extent, in, 0), in.size());
  EXPECT_TRUE(in == out);
}

TEST_P(VolumeTest, closing_the_engine_closes_its_volumes)
{
  auto const shared = engine();
  auto const space =
    make_ref<Volume>(folders(2), VolumeOptions{.capacity = mib, .reserve_bytes = 1}, shared);
  auto extent = space->allocate(4096);
  shared->close();
  Memory const one{1};
  EXPECT_EQ(error_of([&] { (void)read(*extent, one, 0); }).status, DP_ERR_CLOSED);
  space->close();
}

TEST_P(VolumeTest, slow_drive_does_not_hold_up_the_other)
{
  auto const names = folders(2);
  EngineOptions options;
  options.faults   = "write:slow@ms=2000,path=" + names[0];
  options.depth    = 1;
  options.threads  = 1;
  auto const space = make_ref<Volume>(
    names, VolumeOptions{.capacity = 64 * mib, .reserve_bytes = 1}, engine(options));
  Memory const out{4096};
  out.fill_pattern(6);
  auto const one = request(out, 0);
  std::vector<Ref<Extent>> extents;
  std::vector<Ref<Ticket>> tickets;
  for (int i = 0; i < 8; ++i) {
    extents.push_back(space->allocate(4096));
    tickets.push_back(extents.back()->write({&one, 1}, Owner{}));
  }
  // Those on drive 1 end while those on drive 0 are held.
  std::size_t fast = 0;
  auto const until = std::chrono::steady_clock::now() + std::chrono::milliseconds{1500};
  while (fast == 0 && std::chrono::steady_clock::now() < until) {
    for (auto const& ticket : tickets) { fast += ticket->ended() ? 1U : 0U; }
  }
  EXPECT_GT(fast, 0U);
  for (auto const& ticket : tickets) { (void)result(ticket); }
}

TEST_P(VolumeTest, many_threads_allocate_write_check_and_free)
{
  auto const space =
    volume(2, {.capacity = 64 * mib, .segment_bytes = mib, .stripe_bytes = 64U << 10U});
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned id = 0; id < 6; ++id) {
    threads.emplace_back([&, id] {
      for (unsigned round = 0; round < 30; ++round) {
        auto const nbytes = 1 + (id * 7919ULL + round * 104729ULL) % 300'000;
        auto extent       = space->allocate(nbytes);
        Memory const out{nbytes, id};
        Memory const in{nbytes};
        out.fill_pattern(id * 1000 + round);
        (void)write(*extent, out, 0);
        (void)read(*extent, in, 0);
        wrong += in == out ? 0 : 1;
      }
    });
  }
  for (auto& thread : threads) { thread.join(); }
  EXPECT_EQ(wrong, 0);
  // The last references are gone and the tickets have ended: so the bytes are back.
  EXPECT_EQ(space->stats().extents, 0U);
  EXPECT_EQ(space->stats().allocated, 0U);
  EXPECT_EQ(space->stats().requested, 0U);
}

TEST_P(VolumeTest, tmpfs_is_allowed_and_warned_about)
{
  if (!std::filesystem::is_directory("/dev/shm")) { GTEST_SKIP() << "no /dev/shm"; }
  TemporaryFolder const memory{"/dev/shm"};
  auto const space = make_ref<Volume>(
    std::vector{memory.path()}, VolumeOptions{.capacity = mib, .reserve_bytes = 1}, engine());
  EXPECT_NE(space->describe().find("lies in memory (tmpfs)"), std::string::npos);
  auto extent = space->allocate(10'000);
  Memory const out{10'000};
  Memory const in{10'000};
  out.fill_pattern(7);
  (void)write(*extent, out, 0);
  (void)read(*extent, in, 0);
  EXPECT_TRUE(in == out);
}

FOR_EACH_BACKEND(VolumeTest);

}  // namespace
}  // namespace datapath::io_testing
