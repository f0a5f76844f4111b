// SPDX-License-Identifier: Apache-2.0
#include "support/settings.hpp"

#include "support/error.hpp"
#include "support/setting_domain.hpp"
#include "support/tuned_file.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace datapath {
namespace {

std::string message_of(auto const& body)
{
  try {
    body();
  } catch (Error const& error) {
    EXPECT_EQ(error.info().status, DP_ERR_INVALID);
    return error.what();
  }
  return "nothing was thrown";
}

bool contains(std::string const& text, std::string_view part)
{ return text.find(part) != std::string::npos; }

/// An empty cache folder and an environment without the variables that a test sets.
class Settings : public ::testing::Test {
 protected:
  void SetUp() override
  {
    auto pattern = (std::filesystem::temp_directory_path() / "datapath-settings-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    ::setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  void TearDown() override
  {
    ::unsetenv("DATAPATH_IO_DEPTH");
    ::unsetenv("XDG_CACHE_HOME");
    set_setting("io.depth", nullptr);
    std::filesystem::remove_all(folder_);
  }
  void write_tuned(std::string_view text) const
  {
    std::filesystem::create_directories(folder_ / "datapath");
    std::ofstream{folder_ / "datapath" / "tuned.conf"} << text;
  }

  std::filesystem::path folder_;
};

TEST_F(Settings, UnknownNameIsRefusedAndNamesTheNearest)
{
  auto const text = message_of([] { (void)setting("io.dept"); });
  EXPECT_TRUE(contains(text, "'io.dept'")) << text;
  EXPECT_TRUE(contains(text, "'io.depth'")) << text;
}

TEST_F(Settings, BadEnvironmentValueNamesTheVariableTheValueAndTheDomain)
{
  ::setenv("DATAPATH_IO_DEPTH", "many", 1);
  auto const text = message_of([] { (void)setting_integer("io.depth"); });
  for (auto const part : {"DATAPATH_IO_DEPTH", "'many'", "1..32768"}) {
    EXPECT_TRUE(contains(text, part)) << text;
  }
}

TEST_F(Settings, ValueOutOfDomainIsRefused)
{
  EXPECT_THROW(set_setting("io.depth", "0"), Error);
  EXPECT_THROW(set_setting("io.depth", "32769"), Error);
  EXPECT_THROW(set_setting("io.backend", "aio"), Error);
  EXPECT_THROW(set_setting("io.backend", ""), Error);
  EXPECT_THROW(set_setting("memory.huge_pages", "maybe"), Error);
  EXPECT_THROW(set_setting("wait.deadline", "-1"), Error);
  EXPECT_THROW(set_setting("wait.deadline", "nan"), Error);
  EXPECT_THROW(set_setting("streams.chunk_bytes", "2GiB"), Error);
}

TEST_F(Settings, TunedFileErrorsNameFileAndLine)
{
  for (auto const* const bad : {"io.depth 64", "io.dept = 64", "io.depth = x", "= 3"}) {
    TearDown();
    SetUp();
    write_tuned(std::string{"# tuned\n\n"} + bad + "\n");
    auto const text = message_of([] { (void)setting("io.depth"); });
    EXPECT_TRUE(contains(text, "tuned.conf' line 3")) << text;
    EXPECT_TRUE(contains(text, "datapath tune")) << text;
  }
}

TEST_F(Settings, ArgumentBeatsEnvironmentBeatsFileBeatsDefault)
{
  EXPECT_EQ(setting("io.depth").source, "default");
  EXPECT_EQ(setting_integer("io.depth"), 128);
  TearDown();
  SetUp();
  write_tuned("io.depth = 64  # measured\n");
  EXPECT_EQ(setting("io.depth").source, "file");
  EXPECT_EQ(setting_integer("io.depth"), 64);
  ::setenv("DATAPATH_IO_DEPTH", "32", 1);
  EXPECT_EQ(setting("io.depth").source, "environment");
  EXPECT_EQ(setting_integer("io.depth"), 32);
  set_setting("io.depth", "16");
  EXPECT_EQ(setting("io.depth").source, "argument");
  EXPECT_EQ(setting_integer("io.depth"), 16);
  set_setting("io.depth", nullptr);
  EXPECT_EQ(setting_integer("io.depth"), 32);
}

TEST_F(Settings, EveryDefaultLiesInItsDomain)
{
  for (auto const& row : settings_table()) {
    EXPECT_NO_THROW(check_setting(row, row.default_value, "default")) << row.name;
    EXPECT_NE(std::string_view{row.help}, "") << row.name;
  }
}

TEST_F(Settings, JsonShowsABadValueInsteadOfFailing)
{
  ::setenv("DATAPATH_IO_DEPTH", "many", 1);
  auto const json = settings_json();
  EXPECT_TRUE(contains(json, R"("name":"io.depth")")) << json;
  EXPECT_TRUE(contains(json, R"("source":"error")")) << json;
}

TEST_F(Settings, KindsConvert)
{
  EXPECT_EQ(setting_nanoseconds("wait.deadline"), 600'000'000'000U);
  EXPECT_EQ(setting_bytes("io.chunk_bytes"), 1U << 20U);
  EXPECT_TRUE(setting_flag("memory.huge_pages"));
}

TEST(ParseBytes, RefusesWhatIsNotASize)
{
  for (auto const* const bad :
       {"", " ", "GiB", "-1", "1 2", "1XB", "1iB", "0x10", "1e3", "17EiB", ".", "1KiBB"}) {
    EXPECT_THROW((void)parse_bytes(bad), Error) << bad;
  }
}

TEST(ParseBytes, ReadsBinaryUnitsInAnyCase)
{
  EXPECT_EQ(parse_bytes("0"), 0U);
  EXPECT_EQ(parse_bytes(" 4096 "), 4096U);
  EXPECT_EQ(parse_bytes("7B"), 7U);
  EXPECT_EQ(parse_bytes("1K"), 1024U);
  EXPECT_EQ(parse_bytes("1kb"), 1024U);
  EXPECT_EQ(parse_bytes("1.5 MB"), 1572864U);
  EXPECT_EQ(parse_bytes("8GiB"), 8ULL << 30U);
  EXPECT_EQ(parse_bytes("2 tib"), 2ULL << 40U);
  EXPECT_EQ(parse_bytes("0.1KiB"), 102U);
  EXPECT_EQ(parse_bytes("9007199254740993"), 9007199254740993U);
  EXPECT_EQ(parse_bytes("16EiB"), UINT64_MAX);
}

}  // namespace
}  // namespace datapath
