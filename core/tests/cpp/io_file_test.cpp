// SPDX-License-Identifier: Apache-2.0
#include "io_support.hpp"

#include <sys/stat.h>

#include <fstream>

namespace datapath::io_testing {
namespace {

struct FileTest : EachBackend {
  std::string const path_ = folder_.file("file");

  [[nodiscard]] Ref<File> file_of(Memory const& content)
  {
    auto const file = engine()->open(path_, "w+");
    (void)write(*file, content, 0);
    return file;
  }
};

TEST_P(FileTest, missing_file_is_an_error_with_errno_path_and_remedy)
{
  auto const error = error_of([&] { (void)engine()->open(path_, "r"); });
  EXPECT_EQ(error.status, DP_ERR_IO);
  EXPECT_EQ(error.os_errno, ENOENT);
  EXPECT_EQ(error.path, path_);
  EXPECT_NE(error.message.find("check the path"), std::string::npos) << error.message;
}

TEST_P(FileTest, unknown_mode_and_empty_path_are_invalid)
{
  for (char const* const mode : {"", "a", "rw", "x", "r++"}) {
    EXPECT_EQ(error_of([&] { (void)engine()->open(path_, mode); }).status, DP_ERR_INVALID) << mode;
  }
  EXPECT_EQ(error_of([&] { (void)engine()->open("", "w"); }).status, DP_ERR_INVALID);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_P(FileTest, folder_and_pipe_are_refused)
{
  EXPECT_EQ(error_of([&] { (void)engine()->open(folder_.path(), "r"); }).os_errno, EISDIR);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { (void)engine()->open(path_, "r"); }).os_errno, ESPIPE);
}

TEST_P(FileTest, reading_needs_a_mode_that_reads_and_writing_one_that_writes)
{
  Memory const one{1};
  auto writer = engine()->open(path_, "w");
  EXPECT_EQ(error_of([&] { (void)read(*writer, one, 0); }).status, DP_ERR_INVALID);
  EXPECT_EQ(write(*writer, one, 0), 1U);
  auto reader = engine()->open(path_, "r");
  EXPECT_EQ(error_of([&] { (void)write(*reader, one, 0); }).status, DP_ERR_INVALID);
  EXPECT_EQ(error_of([&] { reader->truncate(0); }).status, DP_ERR_INVALID);
  EXPECT_EQ(read(*reader, one, 0), 1U);
}

TEST_P(FileTest, w_creates_for_the_owner_only_and_truncates_while_r_plus_keeps)
{
  Memory const content{10'000};
  content.fill_pattern(1);
  (void)file_of(content)->close();
  struct stat status{};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  EXPECT_EQ(engine()->open(path_, "r+")->size(), 10'000U);
  EXPECT_EQ(engine()->open(path_, "w+b")->size(), 0U);
}

TEST_P(FileTest, null_memory_and_offsets_past_the_largest_are_invalid)
{
  auto const file = engine()->open(path_, "w+");
  Memory const one{16};
  dp_io_request const no_memory{nullptr, 1, 0};
  EXPECT_EQ(error_of([&] { (void)file->read({&no_memory, 1}, Owner{}); }).status, DP_ERR_INVALID);
  constexpr std::uint64_t last = (std::uint64_t{1} << 63U) - 1;
  for (std::uint64_t const offset : {last, last + 1, UINT64_MAX, last - 15}) {
    EXPECT_EQ(error_of([&] { (void)write(*file, one, offset); }).status, DP_ERR_INVALID) << offset;
  }
}

TEST_P(FileTest, failing_call_releases_the_owner)
{
  auto const file = engine()->open(path_, "w");
  std::atomic<int> released{0};
  dp_io_request const bad{nullptr, 1, 0};
  (void)error_of([&] { (void)file->write({&bad, 1}, Owner{counting_owner(released)}); });
  EXPECT_EQ(released, 1);
}

TEST_P(FileTest, owner_is_released_once_and_before_the_ticket_ends)
{
  auto const file = engine()->open(path_, "w+");
  Memory const content{3'000'000};
  content.fill_pattern(2);
  std::atomic<int> released{0};
  auto const one    = request(content, 0);
  auto const ticket = file->write({&one, 1}, Owner{counting_owner(released)});
  EXPECT_EQ(result(ticket), content.size());
  EXPECT_EQ(released, 1);
}

TEST_P(FileTest, zero_bytes_and_no_requests_end_at_once)
{
  auto const file = engine()->open(path_, "w+");
  std::atomic<int> released{0};
  dp_io_request const nothing[]{{nullptr, 0, 0}, {nullptr, 0, UINT64_MAX}};
  EXPECT_EQ(result(file->write(nothing, Owner{counting_owner(released)})), 0U);
  EXPECT_EQ(result(file->read({}, Owner{counting_owner(released)})), 0U);
  EXPECT_EQ(released, 2);
  EXPECT_EQ(file->size(), 0U);
}

TEST_P(FileTest, read_past_the_end_is_short_and_leaves_the_bytes_behind_untouched)
{
  for (std::size_t const size :
       {0UL, 1UL, 511UL, 512UL, 4095UL, 4096UL, 4097UL, 70'000UL, 1'048'576UL}) {
    Memory const content{size};
    content.fill_pattern(size);
    auto const file = file_of(content);
    for (std::size_t const start : {0UL, 1UL, 512UL, 4096UL}) {
      for (std::size_t const misalignment : {0UL, 1UL}) {
        Memory const in{size + 200'000, misalignment};
        in.fill(std::byte{0xEE});
        auto const want = size > start ? size - start : 0;
        EXPECT_EQ(read(*file, in, start), want) << size << " from " << start;
        EXPECT_TRUE(
          std::equal(in.data(), in.data() + want, content.data() + std::min(start, size)));
        EXPECT_TRUE(std::all_of(in.data() + want,
                                in.data() + in.size(),
                                [](std::byte b) { return b == std::byte{0xEE}; }))
          << size << " from " << start;
      }
    }
  }
}

TEST_P(FileTest, write_past_the_end_leaves_zeros_between)
{
  auto const file = engine()->open(path_, "w+");
  Memory const out{100};
  out.fill_pattern(3);
  (void)write(*file, out, 1'000'003);
  EXPECT_EQ(file->size(), 1'000'103U);
  Memory const in{1'000'003};
  EXPECT_EQ(read(*file, in, 0), in.size());
  EXPECT_TRUE(in.all(std::byte{0}));
}

TEST_P(FileTest, batch_moves_all_requests_and_counts_them_in_one_ticket)
{
  Memory const content{1'000'000};
  content.fill_pattern(4);
  auto const file = file_of(content);
  std::vector<Memory> parts;
  std::vector<dp_io_request> requests;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < 500; ++i) {
    parts.emplace_back(i * 7 % 5000, i % 3);
    requests.push_back(request(parts.back(), i * 1999 % 990'000));
    total += parts.back().size();
  }
  EXPECT_EQ(result(file->read(requests, Owner{})), total);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_TRUE(std::equal(
      parts[i].data(), parts[i].data() + parts[i].size(), content.data() + requests[i].offset))
      << i;
  }
}

TEST_P(FileTest, truncate_and_sync_come_after_earlier_writes)
{
  auto const file = engine()->open(path_, "w+");
  Memory const content{8U << 20U};
  content.fill_pattern(5);
  auto const one    = request(content, 0);
  auto const ticket = file->write({&one, 1}, Owner{});
  file->truncate(1000);
  EXPECT_TRUE(ticket->ended());
  EXPECT_EQ(file->size(), 1000U);
  auto const again = file->write({&one, 1}, Owner{});
  file->sync();
  EXPECT_TRUE(again->ended());
  EXPECT_EQ(file->size(), content.size());
  EXPECT_EQ(error_of([&] { file->truncate(UINT64_MAX); }).status, DP_ERR_INVALID);
}

TEST_P(FileTest, close_ends_what_is_in_flight_and_refuses_more)
{
  auto const file = faulty_engine("write:slow@ms=100")->open(path_, "w+");
  Memory const content{100'000};
  content.fill_pattern(6);
  auto const one    = request(content, 0);
  auto const ticket = file->write({&one, 1}, Owner{});
  file->close();
  EXPECT_EQ(ticket->state(), DP_OK);
  file->close();
  Memory const in{1};
  EXPECT_EQ(error_of([&] { (void)read(*file, in, 0); }).status, DP_ERR_CLOSED);
  EXPECT_EQ(error_of([&] { (void)file->size(); }).status, DP_ERR_CLOSED);
  EXPECT_EQ(error_of([&] { file->sync(); }).status, DP_ERR_CLOSED);
  EXPECT_EQ(error_of([&] { file->truncate(0); }).status, DP_ERR_CLOSED);
}

TEST_P(FileTest, file_truncated_under_us_reads_short_like_pread)
{
  Memory const content{2U << 20U};
  content.fill_pattern(7);
  auto const file = file_of(content);
  std::filesystem::resize_file(path_, 700'001);
  Memory const in{2U << 20U};
  in.fill(std::byte{0xEE});
  EXPECT_EQ(read(*file, in, 0), 700'001U);
  EXPECT_TRUE(std::equal(in.data(), in.data() + 700'001, content.data()));
  EXPECT_TRUE(std::all_of(
    in.data() + 700'001, in.data() + in.size(), [](std::byte b) { return b == std::byte{0xEE}; }));
}

TEST_P(FileTest, direct_and_buffered_writes_are_seen_by_each_other_and_by_everybody)
{
  auto const file = engine()->open(path_, "w+");
  Memory const pages{256U << 10U};
  pages.fill_pattern(8);
  (void)write(*file, pages, 0);
  Memory const few{10};
  few.fill(std::byte{0xAB});
  (void)write(*file, few, 5000);
  std::copy(few.data(), few.data() + few.size(), pages.data() + 5000);
  Memory const in{256U << 10U};
  EXPECT_EQ(read(*file, in, 0), in.size());
  EXPECT_TRUE(in == pages);
  std::ifstream other{path_, std::ios::binary};
  Memory const seen{256U << 10U};
  other.read(reinterpret_cast<char*>(seen.data()), static_cast<std::streamsize>(seen.size()));
  EXPECT_TRUE(seen == pages);
}

TEST_P(FileTest, direct_io_can_be_switched_off_and_required)
{
  EngineOptions never;
  never.direct = -1;
  EXPECT_NE(engine(never)->open(path_, "w+")->direct_reason().find("io.direct=never"),
            std::string::npos);
  EngineOptions required;
  required.direct = 1;
  auto const refused =
    error_of([&] { EXPECT_EQ(engine(required)->open(path_, "w+")->direct_reason(), ""); });
  EXPECT_TRUE(refused.status == DP_OK || refused.status == DP_ERR_UNSUPPORTED) << refused.message;
}

TEST_P(FileTest, file_keeps_its_engine_and_a_ticket_the_work)
{
  Memory const content{4U << 20U};
  content.fill_pattern(9);
  std::atomic<int> released{0};
  auto file       = engine()->open(path_, "w+");
  auto const one  = request(content, 0);
  auto const last = file->write({&one, 1}, Owner{counting_owner(released)});
  file            = nullptr;
  EXPECT_EQ(result(last), content.size());
  EXPECT_EQ(released, 1);
  EXPECT_EQ(std::filesystem::file_size(path_), content.size());
}

FOR_EACH_BACKEND(FileTest);

}  // namespace
}  // namespace datapath::io_testing
