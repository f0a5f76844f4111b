// SPDX-License-Identifier: Apache-2.0
#include "support/describe.hpp"

#include "support/error.hpp"

#include <gtest/gtest.h>

namespace datapath {
namespace {

DescribeRegistration const good{"test_good",
                                [](JsonWriter& json, bool) { json.field("answer", 42); }};
DescribeRegistration const bad{"test_bad", [](JsonWriter& json, bool) {
                                 json.object("half").field("written", true);
                                 fail(DP_ERR_IO, "the section broke");
                               }};

TEST(Describe, ASectionThatThrowsCarriesItsErrorAndLeavesTheRestWellFormed)
{
  auto const json = describe(false);
  EXPECT_NE(json.find(R"("test_bad":{"error":"the section broke"})"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("test_good":{"answer":42})"), std::string::npos) << json;
}

TEST(Describe, SaysWhatTheMachineIsAndWhichSettingsHold)
{
  auto const json = describe(false);
  for (auto const* const part :
       {R"("machine":{)", R"("memory_total":)", R"("limits":{)", R"("settings":[{)"}) {
    EXPECT_NE(json.find(part), std::string::npos) << part;
  }
}

}  // namespace
}  // namespace datapath
