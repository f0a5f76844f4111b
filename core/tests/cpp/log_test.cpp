// SPDX-License-Identifier: Apache-2.0
#include "support/log.hpp"

#include "support/settings.hpp"

#include <gtest/gtest.h>

namespace datapath {
namespace {

class Log : public ::testing::Test {
 protected:
  void SetUp() override { drain(); }
  void TearDown() override
  {
    set_setting("log.level", nullptr);
    drain();
  }
  static void drain()
  {
    while (take_log_record()) {}
  }
};

TEST_F(Log, RecordsBelowTheLevelAreDropped)
{
  log(LogLevel::info, "test", "not kept");
  EXPECT_FALSE(take_log_record());
  set_setting("log.level", "off");
  log(LogLevel::error, "test", "not kept either");
  EXPECT_FALSE(take_log_record());
}

TEST_F(Log, RecordsAreTakenOnceInOrder)
{
  log(LogLevel::warning, "test", "first");
  log(LogLevel::error, "test", "second");
  auto const first  = take_log_record();
  auto const second = take_log_record();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->message, "first");
  EXPECT_EQ(second->message, "second");
  EXPECT_EQ(second->level, LogLevel::error);
  EXPECT_FALSE(take_log_record());
}

TEST_F(Log, LogOnceSpeaksOnceForASourceAndMessage)
{
  log_once(LogLevel::warning, "test.once", "said");
  log_once(LogLevel::warning, "test.once", "said");
  log_once(LogLevel::warning, "test.other", "said");
  EXPECT_TRUE(take_log_record());
  EXPECT_TRUE(take_log_record());
  EXPECT_FALSE(take_log_record());
}

TEST_F(Log, TheOldestGoWhenNobodyTakesThem)
{
  for (int i = 0; i < 2000; ++i) { log(LogLevel::warning, "test", std::to_string(i)); }
  auto const oldest = take_log_record();
  ASSERT_TRUE(oldest);
  EXPECT_EQ(oldest->message, "976");
}

}  // namespace
}  // namespace datapath
