// SPDX-License-Identifier: Apache-2.0
#include "memory/registration.hpp"

#include "device_support.hpp"
#include "shim/cuda_types.hpp"
#include "streams/null_device.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

namespace datapath::testing {
namespace {

using namespace std::chrono_literals;

class RegistrationTest : public ::testing::Test {
 protected:
  Ref<NullDevice> device_ = make_ref<NullDevice>();
  std::uint64_t page_     = page_bytes();
  Mapping memory_{64 * page_bytes()};
  std::atomic<int> released_{0};

  [[nodiscard]] std::byte* at(std::uint64_t page) const { return memory_.data() + page * page_; }

  [[nodiscard]] dp_owner owner()
  {
    return {[](void* context) { ++*static_cast<std::atomic<int>*>(context); }, &released_};
  }
  [[nodiscard]] Ref<Buffer> pin(void* pointer, std::uint64_t nbytes, bool read_only = false)
  { return register_memory(pointer, nbytes, read_only, true, device_, owner()); }
  [[nodiscard]] bool is_mapped(std::uint64_t page) const
  { return device_->mapped_address(at(page)) != 0; }
  [[nodiscard]] HostRange range_at(void const* pointer) const
  { return device_->registered_range(pointer); }
  /// Of one copy to the device.
  [[nodiscard]] dp_status copy_out(void const* source, std::uint64_t nbytes) const
  {
    std::vector<std::byte> target(nbytes);
    return status_of([&] {
      device_->copy_async(
        address_of(target.data()), address_of(source), nbytes, CopyKind::host_to_device, 0);
      device_->synchronize(0);
    });
  }
};

TEST_F(RegistrationTest, RefusesNoAddressAndRangesThatWrap)
{
  EXPECT_EQ(status_of([&] { (void)pin(nullptr, 1); }), DP_ERR_INVALID);
  EXPECT_EQ(status_of([&] { (void)pin(at(0), UINT64_MAX); }), DP_ERR_INVALID);
  EXPECT_EQ(released_, 2) << "an owner is released also when the call fails";
}

TEST_F(RegistrationTest, SaysWhyMemoryCannotBePinned)
{
  Mapping const fixed{4 * page_, PROT_READ};
  auto const plain = register_memory(fixed.data(), fixed.nbytes(), false, false, device_, owner());
  EXPECT_FALSE(plain->is_pinned());
  EXPECT_TRUE(plain->is_registered());
  EXPECT_EQ(plain->device_address(), 0U);
  EXPECT_NE(plain->reason().find("read-only"), std::string::npos) << plain->reason();
  EXPECT_EQ(status_of([&] { (void)pin(fixed.data(), fixed.nbytes()); }), DP_ERR_CUDA);
  EXPECT_EQ(released_, 1);
  EXPECT_EQ(device_->registered_ranges(), 0U);
}

TEST_F(RegistrationTest, StaysPlainWithoutADeviceAndSaysWhy)
{
  std::string reason;
  if (Device::open_default(&reason)) { GTEST_SKIP() << "there is a CUDA device here"; }
  auto buffer = register_memory(at(0), page_, false, false, nullptr, owner());
  EXPECT_FALSE(buffer->is_pinned());
  EXPECT_EQ(buffer->reason(), reason);
  EXPECT_EQ(buffer->data(), at(0));
  buffer = nullptr;
  EXPECT_EQ(released_, 1);
  EXPECT_EQ(status_of([&] { (void)register_memory(at(0), page_, false, true, nullptr, owner()); }),
            DP_ERR_UNSUPPORTED);
  EXPECT_EQ(released_, 2);
}

TEST_F(RegistrationTest, RegistersReadOnlyMemoryWhenToldSo)
{
  Mapping const fixed{4 * page_, PROT_READ};
  EXPECT_TRUE(pin(fixed.data(), fixed.nbytes(), true)->is_pinned());
}

TEST_F(RegistrationTest, AcceptsZeroBytes)
{
  auto const buffer = pin(at(0), 0);
  auto const none   = pin(nullptr, 0);
  EXPECT_TRUE(buffer->is_pinned());
  EXPECT_EQ(buffer->nbytes(), 0U);
  EXPECT_EQ(device_->registered_ranges(), 0U);
}

TEST_F(RegistrationTest, PinsInPlaceUntilTheLastReference)
{
  auto buffer = pin(at(1) + 100, 2 * page_);
  EXPECT_TRUE(buffer->is_pinned());
  EXPECT_EQ(buffer->data(), at(1) + 100);
  EXPECT_EQ(buffer->device_address(), address_of(at(1) + 100));
  auto const range = range_at(at(2));
  EXPECT_EQ(range.start, address_of(at(1) + 100));
  EXPECT_EQ(range.nbytes, 2 * page_);
  auto alias = buffer;
  buffer     = nullptr;
  EXPECT_TRUE(is_mapped(2));
  EXPECT_EQ(released_, 0);
  alias = nullptr;
  EXPECT_EQ(device_->registered_ranges(), 0U);
  EXPECT_EQ(released_, 1);
}

TEST_F(RegistrationTest, CountsRepeatedRegistrations)
{
  auto first  = pin(at(0), 4 * page_);
  auto second = pin(at(0), 4 * page_);
  EXPECT_EQ(device_->registered_ranges(), 1U);
  first = nullptr;
  EXPECT_TRUE(is_mapped(0));
  second = nullptr;
  EXPECT_FALSE(is_mapped(0));
  EXPECT_EQ(released_, 2);
}

TEST_F(RegistrationTest, ARangeInsideARegisteredOneSharesIt)
{
  auto outer       = pin(at(0) + 7, 4 * page_);
  auto const inner = pin(at(1), page_);
  EXPECT_EQ(device_->registered_ranges(), 1U);
  outer = nullptr;
  EXPECT_EQ(range_at(at(1)).nbytes, 4 * page_);
  EXPECT_EQ(released_, 0);
}

TEST_F(RegistrationTest, OverlappingRegistrationsShareRanges)
{
  auto low    = pin(at(0), 6 * page_);
  auto high   = pin(at(4), 6 * page_);
  auto around = pin(at(2), 20 * page_);
  EXPECT_EQ(device_->registered_ranges(), 3U);
  EXPECT_EQ(range_at(at(2)).nbytes, 6 * page_);
  EXPECT_EQ(range_at(at(6)).nbytes, 4 * page_);
  EXPECT_EQ(range_at(at(10)).nbytes, 12 * page_) << "what was missing, and no more";
  EXPECT_EQ(copy_out(at(10), 12 * page_), DP_OK);
  EXPECT_EQ(copy_out(at(2), 20 * page_), DP_ERR_CUDA) << "as CUDA: over two registered ranges";
  EXPECT_EQ(around->device_address(), address_of(at(2)));
  low = nullptr;
  EXPECT_TRUE(is_mapped(0)) << "the range of `low` is in use by `around`";
  EXPECT_EQ(released_, 0) << "and so its owner is";
  around = nullptr;
  EXPECT_FALSE(is_mapped(15));
  EXPECT_EQ(released_, 1) << "the span of `low` stays whole, and so does its owner";
  EXPECT_TRUE(is_mapped(4)) << "shared by `high` through the span of `low`";
  high = nullptr;
  EXPECT_EQ(device_->registered_ranges(), 0U);
  EXPECT_EQ(released_, 3);
}

TEST_F(RegistrationTest, NeighboursOnOnePageAreApart)
{
  auto left        = pin(at(0), 100);
  auto const right = pin(at(0) + 100, page_);
  EXPECT_EQ(device_->registered_ranges(), 2U);
  EXPECT_EQ(copy_out(at(0), 100), DP_OK);
  EXPECT_EQ(copy_out(at(0) + 100, page_), DP_OK);
  left = nullptr;
  EXPECT_EQ(released_, 1);
  EXPECT_FALSE(is_mapped(0));
  EXPECT_EQ(range_at(at(1)).nbytes, page_);
}

TEST_F(RegistrationTest, LeavesObjectsOnItsFirstAndLastPageAlone)
{
  auto const buffer = pin(at(1) + 100, page_);
  EXPECT_EQ(copy_out(at(1), 100), DP_OK);
  EXPECT_EQ(copy_out(at(2) + 100, 3 * page_), DP_OK) << "it would begin in a whole last page";
}

TEST_F(RegistrationTest, RegistersEachGapBetweenOddForeignRangesOnce)
{
  device_->register_host(at(3) + 17, 1000, false);
  device_->register_host(at(3) + 1017, 1, false);
  device_->register_host(at(40) + 1, 5, false);
  auto const buffer = pin(at(0), 50 * page_);
  EXPECT_EQ(device_->registered_ranges(), 6U);
  EXPECT_EQ(range_at(at(0)).nbytes, 3 * page_ + 17);
  EXPECT_EQ(range_at(at(30)).nbytes, 37 * page_ + 1 - 1018);
  EXPECT_EQ(range_at(at(49)).nbytes, 10 * page_ - 6);
  EXPECT_EQ(registration_stats().bytes, 50 * page_ - 1006);
}

TEST_F(RegistrationTest, UsesWhatAnotherLibraryRegisteredAndLeavesItAlone)
{
  device_->register_host(at(5), 3 * page_, false);
  device_->register_host(at(20), page_, false);
  auto buffer = pin(at(0), 40 * page_);
  for (std::uint64_t page = 0; page < 40; ++page) { EXPECT_TRUE(is_mapped(page)) << page; }
  buffer = nullptr;
  EXPECT_FALSE(is_mapped(4));
  EXPECT_TRUE(is_mapped(5));
  EXPECT_TRUE(is_mapped(7));
  EXPECT_FALSE(is_mapped(8));
  EXPECT_TRUE(is_mapped(20));
  EXPECT_EQ(device_->registered_ranges(), 2U);
}

TEST_F(RegistrationTest, LeavesNothingBehindWhenAPartCannotBePinned)
{
  auto const shared = pin(at(0), 2 * page_);
  ASSERT_EQ(::munmap(at(30), page_), 0);
  EXPECT_EQ(status_of([&] { (void)pin(at(1), 40 * page_); }), DP_ERR_CUDA);
  EXPECT_EQ(device_->registered_ranges(), 1U);
  EXPECT_TRUE(is_mapped(1));
  EXPECT_EQ(released_, 1);
}

TEST_F(RegistrationTest, DoesNotGiveWritableMemoryOverReadOnlyRanges)
{
  auto const read_only = pin(at(0), page_, true);
  auto const plain     = register_memory(at(0), 2 * page_, false, false, device_, owner());
  EXPECT_FALSE(plain->is_pinned());
  EXPECT_NE(plain->reason().find("read-only"), std::string::npos);
  EXPECT_EQ(device_->registered_ranges(), 1U);
}

TEST_F(RegistrationTest, LargeMemoryIsOneRange)
{
  Mapping const large{std::size_t{9} << 20U};
  auto const buffer = pin(large.data(), large.nbytes());
  EXPECT_EQ(device_->registered_ranges(), 1U);
  EXPECT_EQ(copy_out(large.data(), large.nbytes()), DP_OK);
}

TEST_F(RegistrationTest, IsUndoneAfterTheWorkWithNoFurtherCall)
{
  std::uint32_t flag = 0;
  auto const stream  = device_->create_stream(0);
  auto buffer        = pin(at(0), page_);
  device_->wait_value32(stream, address_of(&flag), 1);
  buffer->record_use(*device_, stream);
  buffer = nullptr;
  std::this_thread::sleep_for(20ms);
  EXPECT_TRUE(is_mapped(0));
  EXPECT_EQ(released_, 0);
  std::atomic_ref{flag}.store(1);
  for (int round = 0; round < 2000 && released_ == 0; ++round) { std::this_thread::sleep_for(1ms); }
  EXPECT_EQ(released_, 1);
  EXPECT_EQ(device_->registered_ranges(), 0U);
}

TEST_F(RegistrationTest, IsUndoneAtOnceWhenTheWorkHasEnded)
{
  auto const stream = device_->create_stream(0);
  auto buffer       = pin(at(0), page_);
  buffer->record_use(*device_, stream);
  device_->synchronize(stream);
  buffer = nullptr;
  EXPECT_EQ(released_, 1);
}

TEST_F(RegistrationTest, InheritedByAChildIsLetGoOfQuietly)
{
  auto buffer = pin(at(0), page_);
  EXPECT_TRUE(in_child([&] {
    if (status_of([&] { buffer->record_use(*device_, 0); }) != DP_ERR_FORKED) { return false; }
    if (status_of([&] { (void)register_memory(at(0), page_, false, false, device_, owner()); }) !=
        DP_ERR_FORKED) {
      return false;
    }
    released_ = 0;
    buffer    = nullptr;
    if (released_ != 0) { return false; }
    auto const fresh = register_memory(at(0), page_, false, true, Device::open("null"), owner());
    return fresh->is_pinned();
  }));
  EXPECT_TRUE(is_mapped(0));
}

TEST_F(RegistrationTest, ManyThreadsRegisterOverlappingMemory)
{
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  constexpr int each = 200;
  for (unsigned thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937 random{thread};
      for (int round = 0; round < each; ++round) {
        auto const first  = random() % 60;
        auto const pages  = 1 + random() % (63 - first);
        auto const buffer = pin(at(first), pages * page_);
        if (device_->mapped_address(at(first + pages - 1)) == 0) { ++wrong; }
      }
    });
  }
  for (auto& thread : threads) { thread.join(); }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(device_->registered_ranges(), 0U);
  EXPECT_EQ(released_, 8 * each);
}

TEST_F(RegistrationTest, KeepsItsCountsOverRandomOverlaps)
{
  std::mt19937 random{7};
  std::vector<int> uses(64);
  struct Held {
    Ref<Buffer> buffer;
    std::uint64_t first;
    std::uint64_t pages;
  };
  std::vector<Held> held;
  for (int operation = 0; operation < 5000; ++operation) {
    if (held.size() < 10 && random() % 2 == 0) {
      auto const first = random() % 60;
      auto const pages = 1 + random() % (63 - first);
      held.push_back({pin(at(first), pages * page_), first, pages});
      for (auto page = first; page < first + pages; ++page) { ++uses[page]; }
    } else if (!held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      auto const gone = std::move(held.back());
      held.pop_back();
      for (auto page = gone.first; page < gone.first + gone.pages; ++page) { --uses[page]; }
    }
    for (std::uint64_t page = 0; page < uses.size(); ++page) {
      // They may stay longer, with the span they belong to, but never go while they are used.
      if (uses[page] > 0) { ASSERT_TRUE(is_mapped(page)) << operation << ' ' << page; }
    }
  }
  held.clear();
  EXPECT_EQ(device_->registered_ranges(), 0U);
  EXPECT_EQ(registration_stats().spans, 0U);
}

}  // namespace
}  // namespace datapath::testing
