// SPDX-License-Identifier: Apache-2.0
#include "memory/pool.hpp"

#include "device_support.hpp"
#include "streams/null_device.hpp"

#include <gtest/gtest.h>

#include <sys/mman.h>

#include <cstring>
#include <limits>
#include <vector>

namespace datapath::testing {
namespace {

constexpr std::uint64_t kib = 1024;
constexpr std::uint64_t mib = 1024 * kib;

class PoolTest : public ::testing::Test {
 protected:
  Ref<NullDevice> device_ = make_ref<NullDevice>();

  [[nodiscard]] Ref<Pool> make(std::uint64_t budget, std::uint64_t piece_bytes = 0)
  {
    PoolOptions options;
    options.budget      = budget;
    options.piece_bytes = piece_bytes;
    options.device      = device_;
    return make_ref<Pool>(std::move(options));
  }
  [[nodiscard]] bool is_one_range(Buffer const& buffer) const
  {
    auto const range = device_->registered_range(buffer.data());
    auto const start = address_of(buffer.data());
    return range.start <= start && start + buffer.nbytes() <= range.start + range.nbytes;
  }
  /// Of one copy of the whole buffer to the device.
  [[nodiscard]] dp_status copy_out(Buffer const& buffer) const
  {
    auto const target = device_->allocate(buffer.nbytes());
    auto const status = status_of([&] {
      device_->copy_async(
        target, address_of(buffer.data()), buffer.nbytes(), CopyKind::host_to_device, 0);
      device_->synchronize(0);
    });
    device_->free(target);
    return status;
  }
};

TEST_F(PoolTest, RefusesWhatExceedsTheBudgetAndSaysByHowMuch)
{
  auto const pool  = make(4 * mib);
  auto const held  = pool->allocate(3 * mib);
  auto const error = error_of([&] { (void)pool->allocate(2 * mib); });
  EXPECT_EQ(error.status, DP_ERR_BUDGET);
  for (auto const* part : {"2097152", "3145728", "4194304", "budget="}) {
    EXPECT_NE(error.message.find(part), std::string::npos) << error.message;
  }
  EXPECT_EQ(status_of([&] { (void)pool->allocate(std::numeric_limits<std::uint64_t>::max()); }),
            DP_ERR_BUDGET);
  EXPECT_EQ(status_of([&] { pool->reserve(5 * mib); }), DP_ERR_BUDGET);
  EXPECT_EQ(pool->stats().live_buffers, 1U);
  pool->check_invariants();
}

TEST_F(PoolTest, RefusesAlignmentsThatAreNone)
{
  auto const pool = make(8 * mib);
  for (std::uint64_t const alignment : {3U, 4097U, 4U << 20U}) {
    EXPECT_EQ(status_of([&] { (void)pool->allocate(1, alignment); }), DP_ERR_INVALID);
  }
}

TEST_F(PoolTest, RefusesPiecesAndBudgetsThatAreTooLarge)
{
  EXPECT_EQ(status_of([&] { (void)make(mib, std::uint64_t{1} << 50U); }), DP_ERR_INVALID);
  EXPECT_EQ(status_of([&] { (void)make(std::uint64_t{1} << 50U); }), DP_ERR_INVALID);
}

TEST_F(PoolTest, AfterCloseGivesNothingAndLosesItsMemoryWithTheLastBuffer)
{
  auto const pool = make(64 * mib);
  auto buffer     = pool->allocate(mib);
  pool->close();
  pool->close();
  EXPECT_EQ(status_of([&] { (void)pool->allocate(1); }), DP_ERR_CLOSED);
  EXPECT_EQ(status_of([&] { pool->reserve(1); }), DP_ERR_CLOSED);
  std::memset(buffer->data(), 1, mib);
  EXPECT_GT(pool->stats().backed, 0U);
  buffer = nullptr;
  EXPECT_EQ(pool->stats().backed, 0U);
  EXPECT_EQ(device_->registered_ranges(), 0U);
}

TEST_F(PoolTest, GivesExactSizesAtFourKibibytes)
{
  auto const pool  = make(64 * mib);
  auto const a     = pool->allocate(1);
  auto const b     = pool->allocate(4097);
  auto const c     = pool->allocate(3 * mib + 5);
  auto const stats = pool->stats();
  EXPECT_EQ(stats.requested, 1 + 4097 + 3 * mib + 5);
  EXPECT_EQ(stats.allocated, 4 * kib + 8 * kib + 3 * mib + 4 * kib);
  EXPECT_EQ(stats.live_buffers, 3U);
  EXPECT_EQ(stats.allocations, 3U);
  EXPECT_EQ(c->nbytes(), 3 * mib + 5);
  for (auto const& buffer : {a, b, c}) {
    EXPECT_EQ(address_of(buffer->data()) % 4096, 0U);
    std::memset(buffer->data(), 0x5A, buffer->nbytes());
  }
}

TEST_F(PoolTest, GivesBuffersOfZeroBytes)
{
  auto const pool   = make(mib);
  auto const first  = pool->allocate(0);
  auto const second = pool->allocate(0, 2 * mib);
  EXPECT_NE(first->data(), nullptr);
  EXPECT_EQ(first->nbytes(), 0U);
  EXPECT_EQ(address_of(second->data()) % (2 * mib), 0U);
  auto const stats = pool->stats();
  EXPECT_EQ(stats.backed, 0U);
  EXPECT_EQ(stats.live_buffers, 2U);
  first->record_use(*device_, 0);
}

TEST_F(PoolTest, Aligns)
{
  auto const pool = make(256 * mib);
  std::vector<Ref<Buffer>> held;
  for (std::uint64_t alignment = 1; alignment <= 2 * mib; alignment *= 2) {
    held.push_back(pool->allocate(5000));
    held.push_back(pool->allocate(5000, alignment));
    EXPECT_EQ(address_of(held.back()->data()) % alignment, 0U) << alignment;
  }
  pool->check_invariants();
}

TEST_F(PoolTest, PinsWithADevice)
{
  auto const pool   = make(16 * mib);
  auto const buffer = pool->allocate(mib);
  EXPECT_TRUE(buffer->is_pinned());
  EXPECT_FALSE(buffer->is_registered());
  EXPECT_EQ(buffer->reason(), "");
  EXPECT_EQ(buffer->device(), device_.get());
  EXPECT_EQ(buffer->device_address(), address_of(buffer->data()));
  EXPECT_EQ(device_->mapped_address(buffer->data()), buffer->device_address());
  auto const stats = pool->stats();
  EXPECT_EQ(stats.is_pinned, 1);
  EXPECT_EQ(stats.pinned, stats.backed);
}

TEST_F(PoolTest, WorksOnPlainMemoryWithoutADevice)
{
  std::string reason;
  if (Device::open_default(&reason)) { GTEST_SKIP() << "there is a CUDA device here"; }
  PoolOptions options;
  options.budget    = 16 * mib;
  options.lock      = -1;
  auto const pool   = make_ref<Pool>(std::move(options));
  auto const buffer = pool->allocate(mib);
  std::memset(buffer->data(), 1, mib);
  EXPECT_FALSE(buffer->is_pinned());
  EXPECT_EQ(buffer->reason(), reason);
  EXPECT_EQ(buffer->device(), nullptr);
  EXPECT_EQ(buffer->device_address(), 0U);
  EXPECT_EQ(pool->stats().is_pinned, 0);
  EXPECT_EQ(pool->stats().pinned, 0U);
}

TEST_F(PoolTest, LocksPlainMemoryOrSaysWhyNot)
{
  if (Device::open_default()) { GTEST_SKIP() << "there is a CUDA device here"; }
  PoolOptions options;
  options.budget    = 16 * mib;
  options.lock      = 1;
  auto const pool   = make_ref<Pool>(std::move(options));
  auto const buffer = pool->allocate(mib);
  if (buffer->is_pinned()) {
    EXPECT_EQ(pool->stats().pinned, pool->stats().backed);
  } else {
    EXPECT_NE(buffer->reason().find("mlock"), std::string::npos) << buffer->reason();
  }
}

TEST_F(PoolTest, ReusesWhatCameBack)
{
  auto const pool = make(64 * mib);
  void* first     = pool->allocate(mib)->data();
  EXPECT_EQ(pool->allocate(mib)->data(), first);
  EXPECT_EQ(pool->stats().allocated, 0U);
  EXPECT_EQ(pool->stats().peak_allocated, mib);
}

TEST_F(PoolTest, ReservesOneRangeAndThenNeedsNoMore)
{
  auto const pool = make(64 * mib, 4 * mib);
  pool->reserve(18 * mib);
  auto const before = pool->stats();
  EXPECT_EQ(before.backed, 18 * mib);
  EXPECT_EQ(before.pieces, 1U);
  EXPECT_EQ(device_->registered_ranges(), 1U);
  pool->reserve(10 * mib);
  auto const buffer = pool->allocate(18 * mib);
  EXPECT_EQ(pool->stats().backed, before.backed);
  EXPECT_TRUE(is_one_range(*buffer));
  pool->check_invariants();
}

TEST_F(PoolTest, ReservesWhatIsMissing)
{
  auto const pool = make(64 * mib, 4 * mib);
  pool->reserve(8 * mib);
  auto const held = pool->allocate(3 * mib);
  pool->reserve(20 * mib);
  EXPECT_EQ(pool->stats().backed, 23 * mib);
  EXPECT_EQ(pool->stats().pieces, 2U);
  auto const other = pool->allocate(15 * mib);
  EXPECT_EQ(pool->stats().backed, 23 * mib);
  pool->check_invariants();
}

TEST_F(PoolTest, EveryBufferLiesInOneRangeWhateverItsSize)
{
  auto const pool = make(128 * mib, 4 * mib);
  std::vector<Ref<Buffer>> held;
  for (std::uint64_t const size : {mib, 3 * mib, 4 * mib, 5 * mib, 10 * mib, 33 * mib + 1}) {
    auto buffer = pool->allocate(size);
    EXPECT_TRUE(is_one_range(*buffer)) << size;
    EXPECT_TRUE(buffer->is_pinned());
    EXPECT_EQ(buffer->device_address(), address_of(buffer->data()));
    EXPECT_EQ(copy_out(*buffer), DP_OK) << size;
    held.push_back(std::move(buffer));
  }
  pool->check_invariants();
}

TEST_F(PoolTest, ALargeRequestTakesNoMoreThanItNeeds)
{
  auto const pool   = make(64 * mib, 4 * mib);
  auto const buffer = pool->allocate(10 * mib + 1);
  EXPECT_EQ(pool->stats().backed, 10 * mib + 4 * kib);
  EXPECT_EQ(pool->stats().pieces, 1U);
}

TEST_F(PoolTest, ExchangesFreePiecesForALargerOne)
{
  auto const pool = make(64 * mib, 4 * mib);
  pool->reserve(8 * mib);
  auto const buffer = pool->allocate(12 * mib);
  EXPECT_TRUE(is_one_range(*buffer));
  EXPECT_EQ(pool->stats().backed, 20 * mib) << "there is budget for both";
  pool->check_invariants();
  auto const all = pool->allocate(50 * mib);
  EXPECT_EQ(pool->stats().backed, 62 * mib) << "the free 8 MiB gave way";
  pool->check_invariants();
}

TEST_F(PoolTest, ExchangesSmallFreePiecesRatherThanGrow)
{
  auto const pool = make(64 * mib);
  for (std::uint64_t index = 1; index <= 4; ++index) { pool->reserve(index * 2 * mib); }
  EXPECT_EQ(pool->stats().pieces, 4U);
  auto const buffer = pool->allocate(8 * mib);
  EXPECT_TRUE(is_one_range(*buffer));
  EXPECT_EQ(device_->registered_ranges(), pool->stats().pieces);
  pool->check_invariants();
}

TEST_F(PoolTest, SaysThatFreeMemoryIsInPieces)
{
  auto const pool = make(8 * mib, 4 * mib);
  auto const a    = pool->allocate(3 * mib);
  auto b          = pool->allocate(2 * mib);
  auto const c    = pool->allocate(2 * mib);
  b               = nullptr;
  // 3 MiB are free, in 1 and 2 MiB, and neither piece can go.
  auto const error = error_of([&] { (void)pool->allocate(3 * mib); });
  EXPECT_EQ(error.status, DP_ERR_BUDGET);
  for (auto const* part : {"3145728 bytes are free", "2 pieces", "2097152", "trim", "reserve"}) {
    EXPECT_NE(error.message.find(part), std::string::npos) << error.message;
  }
  auto const d = pool->allocate(2 * mib);
  EXPECT_TRUE(is_one_range(*d));
  pool->check_invariants();
}

TEST_F(PoolTest, KeepsFreePiecesThatWouldNotHelp)
{
  auto const pool = make(16 * mib, 4 * mib);
  auto const held = pool->allocate(8 * mib);
  pool->reserve(4 * mib);
  EXPECT_EQ(status_of([&] { (void)pool->allocate(10 * mib); }), DP_ERR_BUDGET);
  EXPECT_EQ(pool->stats().backed, 12 * mib);
  EXPECT_EQ(pool->stats().pieces, 2U);
}

TEST_F(PoolTest, FillsTheBudgetWithSmallPieces)
{
  auto const pool = make(mib, 8 * kib);
  std::vector<Ref<Buffer>> held;
  for (int page = 0; page < 256; ++page) { held.push_back(pool->allocate(4096)); }
  EXPECT_EQ(pool->stats().allocated, mib);
  pool->check_invariants();
}

TEST_F(PoolTest, UsesTheBudgetToTheLastPage)
{
  auto const pool = make(5 * mib + 4 * kib, mib);
  std::vector<Ref<Buffer>> held;
  for (int page = 0; page < 5 * 256 + 1; ++page) { held.push_back(pool->allocate(4096)); }
  EXPECT_EQ(pool->stats().allocated, 5 * mib + 4 * kib);
  EXPECT_EQ(status_of([&] { (void)pool->allocate(1); }), DP_ERR_BUDGET);
  held.clear();
  auto const all = pool->allocate(5 * mib + 4 * kib);
  pool->check_invariants();
}

TEST_F(PoolTest, TrimsPiecesThatNothingUses)
{
  auto const pool = make(64 * mib, 4 * mib);
  auto held       = pool->allocate(4 * mib);
  auto other      = pool->allocate(6 * mib);
  EXPECT_EQ(pool->trim(), 0U);
  other = nullptr;
  EXPECT_EQ(pool->trim(), 6 * mib);
  EXPECT_EQ(pool->stats().backed, 4 * mib);
  EXPECT_EQ(device_->registered_ranges(), 1U);
  pool->check_invariants();
  held = nullptr;
  EXPECT_EQ(pool->trim(), 4 * mib);
  EXPECT_EQ(pool->stats().backed, 0U);
  EXPECT_EQ(pool->stats().pieces, 0U);
  auto const again = pool->allocate(4 * mib);
  std::memset(again->data(), 1, 4 * mib);
}

TEST_F(PoolTest, LeavesNothingRegisteredBehind)
{
  {
    auto const pool = make(64 * mib);
    auto buffer     = pool->allocate(10 * mib);
    EXPECT_GT(device_->registered_ranges(), 0U);
  }
  EXPECT_EQ(device_->registered_ranges(), 0U);
}

TEST_F(PoolTest, ABufferKeepsItsPoolAlive)
{
  auto pool         = make(64 * mib);
  auto const buffer = pool->allocate(mib);
  pool              = nullptr;
  std::memset(buffer->data(), 3, mib);
}

TEST_F(PoolTest, IsBoundedByWhatIsAvailableByDefault)
{
  auto const pool = make(0);
  EXPECT_GT(pool->stats().budget, 0U);
  EXPECT_EQ(status_of([&] { (void)pool->allocate(pool->stats().budget + 1); }), DP_ERR_BUDGET);
}

TEST_F(PoolTest, RefusesANodeThatIsNotThere)
{
  PoolOptions options;
  options.budget    = mib;
  options.numa_node = 1000;
  options.device    = device_;
  auto const pool   = make_ref<Pool>(std::move(options));
  auto const status = status_of([&] { (void)pool->allocate(1); });
  EXPECT_TRUE(status == DP_ERR_INVALID || status == DP_ERR_UNSUPPORTED) << status;
  EXPECT_EQ(pool->stats().backed, 0U);
  pool->check_invariants();
}

TEST_F(PoolTest, PlacesMemoryOnTheFirstNode)
{
  PoolOptions options;
  options.budget    = 8 * mib;
  options.numa_node = 0;
  options.device    = device_;
  auto const pool   = make_ref<Pool>(std::move(options));
  auto const status = status_of([&] {
    auto const buffer = pool->allocate(mib);
    std::memset(buffer->data(), 1, mib);
  });
  EXPECT_TRUE(status == DP_OK || status == DP_ERR_UNSUPPORTED) << status;
}

TEST_F(PoolTest, InheritedByAChildRefusesAndIsLetGoOfQuietly)
{
  auto pool   = make(16 * mib);
  auto buffer = pool->allocate(mib);
  buffer->record_use(*device_, 0);
  EXPECT_TRUE(in_child([&] {
    if (status_of([&] { (void)pool->allocate(1); }) != DP_ERR_FORKED) { return false; }
    if (status_of([&] { (void)pool->stats(); }) != DP_ERR_FORKED) { return false; }
    if (status_of([&] { pool->close(); }) != DP_ERR_FORKED) { return false; }
    buffer = nullptr;
    pool   = nullptr;
    PoolOptions options;
    options.budget   = mib;
    options.device   = Device::open("null");
    auto const fresh = make_ref<Pool>(std::move(options));
    std::memset(fresh->allocate(kib)->data(), 1, kib);
    return true;
  }));
  std::memset(buffer->data(), 1, mib);
}

TEST_F(PoolTest, IsNotCopiedIntoAChild)
{
  auto const pool   = make(16 * mib);
  auto const buffer = pool->allocate(mib);
  EXPECT_TRUE(in_child([&] {
    unsigned char resident = 0;
    return ::mincore(buffer->data(), page_bytes(), &resident) != 0;
  }));
}

}  // namespace
}  // namespace datapath::testing
