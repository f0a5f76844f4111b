// SPDX-License-Identifier: Apache-2.0
/// @file
/// The header-only C++ layer: errors, references, owners, waits.
#include <datapath/datapath.hpp>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>

namespace {

namespace dp = datapath::client;

dp::Engine threads_engine(char const* faults = nullptr)
{
  dp_engine_options options{};
  options.backend = "threads";
  options.threads = 1;
  options.faults  = faults;
  return dp::Engine{options};
}

class Client : public ::testing::Test {
 protected:
  void SetUp() override
  {
    auto pattern = (std::filesystem::temp_directory_path() / "datapath-client-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
};

TEST_F(Client, ErrorsCarryStatusErrnoAndPath)
{
  auto const engine = threads_engine();
  try {
    (void)engine.open(folder_ + "/missing", "r");
    FAIL() << "a missing file was opened";
  } catch (dp::IoError const& error) {
    EXPECT_EQ(error.status(), DP_ERR_IO);
    EXPECT_EQ(error.os_errno(), ENOENT);
    EXPECT_EQ(error.path(), folder_ + "/missing");
  }
}

TEST_F(Client, EachGroupOfStatusesHasItsClass)
{
  EXPECT_THROW((void)dp::get_setting("no.such"), dp::InvalidError);
  EXPECT_THROW((void)dp::parse_bytes("much"), dp::InvalidError);
  EXPECT_THROW((void)dp::Device{"cuda:99"}, dp::Error);
  auto const engine = threads_engine();
  engine.close();
  EXPECT_THROW((void)engine.open(folder_ + "/file", "w"), dp::InvalidError);
  dp_volume_options small{};
  small.capacity = 1U << 20U;
  EXPECT_THROW((void)(dp::Volume{{folder_}, small}.allocate(1U << 30U)), dp::OutOfSpaceError);
  dp_pool_options tight{};
  tight.budget = 4U << 20U;
  EXPECT_THROW((void)dp::Pool{tight}.allocate(1U << 30U), dp::BudgetError);
}

TEST_F(Client, AnEmptyHandleIsRefusedInsteadOfCrashing)
{
  EXPECT_THROW((void)dp::File{}.size(), dp::InvalidError);
  EXPECT_THROW((void)dp::Engine{}.describe(), dp::InvalidError);
}

TEST_F(Client, CopiesShareAndTheLastOneLetsGo)
{
  dp_pool_options options{};
  options.budget = 4U << 20U;
  dp::Pool const pool{options};
  auto first  = pool.allocate(100);
  auto second = first;
  first       = {};
  EXPECT_EQ(pool.stats().live_buffers, 1U);
  second.bytes()[99] = std::byte{1};
  auto third         = std::move(second);
  third              = {};
  EXPECT_EQ(pool.stats().live_buffers, 0U);
}

TEST_F(Client, AnOwnerIsReleasedOnceHoweverTheCallEnds)
{
  auto const engine = threads_engine();
  auto const file   = engine.open(folder_ + "/file", "w+");
  auto const kept   = std::make_shared<std::string>("bytes");
  dp_io_request const request{kept->data(), kept->size(), 0};
  EXPECT_EQ(file.write({&request, 1}, dp::own(kept)).result(), 5U);
  file.close();
  EXPECT_THROW((void)file.write({&request, 1}, dp::own(kept)), dp::InvalidError);
  engine.close();
  EXPECT_EQ(kept.use_count(), 1);
}

TEST_F(Client, ATimeoutLeavesTheWorkAlive)
{
  auto const engine = threads_engine("write:slow@ms=300");
  auto const file   = engine.open(folder_ + "/file", "w+");
  std::string text{"slow"};
  dp_io_request const request{text.data(), text.size(), 0};
  auto const ticket = file.write({&request, 1});
  EXPECT_THROW((void)ticket.result(std::chrono::milliseconds{5}), dp::TimeoutError);
  EXPECT_FALSE(ticket.done());
  EXPECT_EQ(ticket.result(), 4U);
  EXPECT_TRUE(ticket.done());
}

TEST_F(Client, MessagesAndSettingsAreReachable)
{
  dp::set_setting("io.depth", "77");
  EXPECT_EQ(dp::get_setting("io.depth").value, "77");
  EXPECT_EQ(dp::get_setting("io.depth").source, "argument");
  dp::reset_setting("io.depth");
  EXPECT_NE(dp::describe().find("\"machine\""), std::string::npos);
  while (dp::take_log_message()) {}
  auto const engine = threads_engine("write:eio@after=123456");
  auto const found  = dp::take_log_message();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->level, 30);
}

}  // namespace
