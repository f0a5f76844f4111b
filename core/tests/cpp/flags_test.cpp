// SPDX-License-Identifier: Apache-2.0
/// @file
/// The words that deferred waits look at.
#include "streams/flags.hpp"

#include "device_support.hpp"
#include "streams/null_device.hpp"

#include <gtest/gtest.h>

namespace datapath::testing {
namespace {

/// Sees the words at addresses of its own, and waits for nothing.
class OtherDevice : public NullDevice {
 public:
  static constexpr std::uint64_t distance = std::uint64_t{1} << 60U;

  [[nodiscard]] std::uint64_t mapped_address(void const* pointer) noexcept override
  { return address_of(pointer) + distance; }
  void wait_value32(dp_stream, std::uint64_t, std::uint32_t) override {}
};

TEST(FlagPoolTest, AWordThatAnotherDeviceWaitedForIsSeenAtItsHomeAddressAgain)
{
  auto const home  = make_ref<NullDevice>();
  auto const other = make_ref<OtherDevice>();
  FlagPool flags{home, {}};
  auto const abroad = flags.reserve(*other);
  EXPECT_EQ(abroad.device_address, address_of(abroad.word) + OtherDevice::distance);
  flags.wait(abroad, 0);
  other->synchronize(0);
  flags.set(abroad);
  auto found = false;
  for (int i = 0; i < 64 && !found; ++i) {
    auto const flag = flags.reserve(*home);
    EXPECT_EQ(flag.device_address, address_of(flag.word));
    found = flag.word == abroad.word;
  }
  EXPECT_TRUE(found);
  flags.shut_down();
}

}  // namespace
}  // namespace datapath::testing
