// SPDX-License-Identifier: Apache-2.0
#include "memory/pool.hpp"

#include "memory/available.hpp"
#include "memory/pages.hpp"
#include "memory/pool_buffer.hpp"
#include "memory/pool_list.hpp"
#include "memory/reaper.hpp"
#include "support/error.hpp"
#include "support/settings.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace datapath {

namespace {

constexpr std::uint64_t most_alignment = huge_page_bytes;
constexpr std::uint64_t most_budget    = std::uint64_t{1} << 44U;

bool chosen(std::int32_t option, char const* setting)
{ return option == 0 ? setting_flag(setting) : option > 0; }

/// By default some of what is available is left for everyone else.
std::uint64_t default_budget()
{
  auto const set = setting_bytes("memory.budget");
  if (set != 0) { return set; }
  auto const available = available_memory().bytes;
  return std::min(available - available / 16, most_budget);
}

}  // namespace

Pool::Pool(PoolOptions options) : options_{std::move(options)}
{
  backing_.device_required = static_cast<bool>(options_.device);
  if (!options_.device) { options_.device = Device::open_default(&reason_); }
  backing_.device        = options_.device.get();
  backing_.huge_pages    = chosen(options_.huge_pages, "memory.huge_pages");
  backing_.lock          = !options_.device && chosen(options_.lock, "memory.lock");
  backing_.numa_required = options_.numa_node >= 0;
  backing_.numa_node     = options_.numa_node;
  if (backing_.numa_node < 0 && options_.device) {
    backing_.numa_node = options_.device->numa_node();
  }
  expects(options_.piece_bytes <= most_budget, "a pool's piece_bytes must be at most 16 TiB");
  fixed_pieces_ = options_.piece_bytes != 0;
  piece_bytes_  = round_up(
    fixed_pieces_ ? options_.piece_bytes : setting_bytes("memory.piece_bytes"), page_bytes());
  budget_ = options_.budget != 0 ? options_.budget : default_budget();
  expects(budget_ <= most_budget, "a pool's budget must be at most 16 TiB");

  // More than the budget, since pieces of different sizes leave holes between them.
  auto const addresses = round_up(4 * budget_, huge_page_bytes);
  address_bytes_       = addresses + 2 * huge_page_bytes;
  addresses_           = reserve_addresses(address_bytes_);
  auto const start     = round_up(reinterpret_cast<std::uintptr_t>(addresses_), huge_page_bytes);
  usable_              = {start, start + addresses};
  unbacked_.insert(usable_, usable_);
  counts_.budget = budget_;
  list_pool(this);
}

Pool::~Pool()
{
  for (auto const& [start, piece] : pieces_) { unback(piece, backing_.device); }
  release_addresses(addresses_, address_bytes_);
}

void Pool::check_usable() const
{ fork_.check("the pool"); }

Ref<Buffer> Pool::allocate(std::uint64_t nbytes, std::uint64_t alignment)
{ return allocate(nbytes, alignment, true); }

Ref<Buffer> Pool::try_allocate(std::uint64_t nbytes, std::uint64_t alignment)
{ return allocate(nbytes, alignment, false); }

Ref<Buffer> Pool::allocate(std::uint64_t nbytes, std::uint64_t alignment, bool may_wait)
{
  check_usable();
  if (alignment == 0) { alignment = allocation_grain; }
  expects(std::has_single_bit(alignment) && alignment <= most_alignment,
          "a pool's alignment must be a power of two up to 2 MiB");
  alignment = std::max(alignment, allocation_grain);
  if (nbytes > budget_) { fail_budget(nbytes); }
  auto const rounded = round_up(nbytes, allocation_grain);
  auto const address =
    rounded == 0 ? std::optional{usable_.end} : obtain(rounded, alignment, may_wait);
  if (!address) { return nullptr; }
  try {
    return make_buffer(*address, nbytes, rounded);
  } catch (...) {
    Books const books{mutex_};
    if (rounded != 0) { insert_free({*address, *address + rounded}); }
    throw;
  }
}

std::optional<std::uint64_t> Pool::obtain(std::uint64_t nbytes,
                                          std::uint64_t alignment,
                                          bool may_wait)
{
  constexpr std::size_t a_few = 4;
  while (true) {
    std::uint64_t seen = 0;
    {
      Books const books{mutex_};
      if (closed_) { fail(DP_ERR_CLOSED, "the pool is closed and gives no more buffers"); }
      poll_pending(a_few);
      if (auto const address = free_.take(nbytes, alignment)) { return address; }
      if (poll_pending(pending_.size())) {
        if (auto const address = free_.take(nbytes, alignment)) { return address; }
      }
      seen = returns_;
    }
    {
      std::lock_guard const growth{growth_mutex_};
      if (auto const address = obtain_by_growth(nbytes, alignment)) { return address; }
    }
    switch (wait_for_oldest(seen, may_wait)) {
      case Returned::perhaps:
        break;
      case Returned::never:
        fail_budget(nbytes);
      case Returned::not_yet:
        return std::nullopt;
    }
  }
}

Ref<Buffer> Pool::make_buffer(std::uint64_t address, std::uint64_t nbytes, std::uint64_t rounded)
{
  static std::string const pinned_reason;
  PoolBuffer::Place place;
  place.range  = {address, address + rounded};
  place.nbytes = nbytes;
  place.pinned = options_.device || backing_.lock;
  place.reason = place.pinned ? &pinned_reason : &reason_;

  Books const books{mutex_};
  if (rounded != 0) {
    auto const& piece = std::prev(pieces_.upper_bound(address))->second;
    if (piece.device_address != 0) {
      place.device_address = piece.device_address + (address - piece.start);
    }
    if (!piece.pinned) {
      place.pinned = false;
      place.reason = piece.reason.empty() ? &reason_ : &*reasons_.insert(piece.reason).first;
    }
  }
  auto buffer = make_ref<PoolBuffer>(Ref<Pool>::share(this), std::move(place));
  counts_.allocated += rounded;
  counts_.requested += nbytes;
  counts_.peak_allocated = std::max(counts_.peak_allocated, counts_.allocated);
  ++counts_.allocations;
  ++counts_.live_buffers;
  return buffer;
}

void Pool::reserve(std::uint64_t nbytes)
{
  check_usable();
  if (nbytes > budget_) { fail_budget(nbytes); }
  std::lock_guard const growth_lock{growth_mutex_};
  Books books{mutex_};
  if (closed_) { fail(DP_ERR_CLOSED, "the pool is closed and cannot reserve"); }
  poll_pending(pending_.size());
  if (free_.total() >= nbytes) { return; }
  auto const missing = round_up(nbytes - free_.total(), page_bytes());
  if (missing > room()) {
    books.unlock();
    fail_budget(nbytes);
  }
  auto piece = take_addresses(missing, page_bytes());
  if (!piece) {
    fail(DP_ERR_BUDGET,
         "the pool's addresses are in pieces, so that it cannot reserve " +
           std::to_string(missing) +
           " bytes in one range; call trim first, or reserve before allocating");
  }
  grow(books, std::move(*piece), 0);
}

std::uint64_t Pool::trim()
{
  check_usable();
  std::lock_guard const growth{growth_mutex_};
  Books books{mutex_};
  poll_pending(pending_.size());
  return unback_free_pieces(books, budget_);
}

void Pool::close()
{
  check_usable();
  {
    Books const books{mutex_};
    if (std::exchange(closed_, true)) { return; }
  }
  returned_.notify_all();
  give_back_when_settled();
}

dp_pool_stats Pool::stats()
{
  check_usable();
  Books const books{mutex_};
  poll_pending(pending_.size());
  auto stats   = counts_;
  stats.size   = sizeof stats;
  stats.pieces = pieces_.size();
  // Before anything is backed, what would become of it.
  bool all_pinned = options_.device || backing_.lock;
  for (auto const& [start, piece] : pieces_) { all_pinned = all_pinned && piece.pinned; }
  stats.is_pinned = all_pinned ? 1 : 0;
  return stats;
}

void Pool::fail_budget(std::uint64_t nbytes) const
{
  auto const available = available_memory();
  Books const books{mutex_};
  auto message = "the pool cannot give " + std::to_string(nbytes) +
                 " bytes: " + std::to_string(counts_.allocated) + " bytes are in use and " +
                 std::to_string(counts_.pending) + " wait for work in flight, of a budget of " +
                 std::to_string(budget_);
  if (budget_ - counts_.backed > available.bytes) {
    message +=
      "; the system has " + std::to_string(available.bytes) + " left (" + available.bound + ")";
  }
  if (free_.count() > 1) {
    message += "; " + std::to_string(free_.total()) + " bytes are free, but in " +
               std::to_string(free_.count()) + " pieces, the largest of " +
               std::to_string(free_.largest()) +
               ", and a buffer lies in one: let go of the buffers between them and trim, or " +
               "reserve the memory before the first allocation";
  }
  message += "; let go of buffers, or give the pool a larger budget (budget=, memory.budget)";
  fail(DP_ERR_BUDGET, std::move(message));
}

}  // namespace datapath
