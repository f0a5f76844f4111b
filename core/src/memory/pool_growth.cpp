// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which memory a pool has: new pieces within budget and what the system leaves, and pieces given
/// back.
#include "memory/available.hpp"
#include "memory/pages.hpp"
#include "memory/pool.hpp"
#include "support/error.hpp"

#include <algorithm>
#include <utility>

namespace datapath {

namespace {

/// A pool without fixed pieces starts with this and grows by a quarter.
constexpr std::uint64_t first_growth = std::uint64_t{32} << 20U;

std::uint64_t round_down(std::uint64_t value, std::uint64_t unit)
{ return value & ~(unit - 1); }

}  // namespace

std::uint64_t Pool::room() const
{
  auto const left = budget_ - std::min(budget_, counts_.backed);
  return round_down(std::min(left, available_memory().bytes), page_bytes());
}

bool Pool::is_free(Piece const& piece) const
{ return free_.contains_exactly({piece.start, piece.end}); }

std::uint64_t Pool::free_pieces_bytes() const
{
  std::uint64_t bytes = 0;
  for (auto const& [start, piece] : pieces_) {
    if (is_free(piece)) { bytes += piece.nbytes(); }
  }
  return bytes;
}

std::optional<std::uint64_t> Pool::obtain_by_growth(std::uint64_t nbytes, std::uint64_t alignment)
{
  Books books{mutex_};
  if (closed_) { fail(DP_ERR_CLOSED, "the pool is closed and gives no more buffers"); }
  // Another thread may have grown the pool, or buffers came back, while this one waited.
  if (auto const address = free_.take(nbytes, alignment)) { return address; }
  auto const needed = round_up(nbytes, page_bytes());
  auto left         = room();
  auto const idle   = free_pieces_bytes();
  // Free pieces, each too small, are exchanged for one that holds the request: so that memory does
  // not grow while enough of it lies idle, and so that what lies idle does not use up the budget.
  if (idle >= needed) {
    unback_free_pieces(books, needed);
    left = room();
  } else if (left < needed && left + idle >= needed) {
    unback_free_pieces(books, needed - left);
    left = room();
  }
  auto piece = plan_piece(nbytes, alignment, left);
  if (!piece && room() + free_pieces_bytes() >= needed) {
    // Enough in all, but the addresses are apart.
    unback_free_pieces(books, budget_);
    piece = plan_piece(nbytes, alignment, room());
  }
  if (!piece) { return std::nullopt; }
  auto const start = piece->start;
  grow(books, std::move(*piece), nbytes);
  return start;
}

std::optional<Piece> Pool::take_addresses(std::uint64_t nbytes, std::uint64_t alignment)
{
  // What has room for huge pages begins with one.
  alignment = std::max(alignment, nbytes >= huge_page_bytes ? huge_page_bytes : page_bytes());
  auto const start = unbacked_.take(nbytes, alignment);
  if (!start) { return std::nullopt; }
  return Piece{.start = *start, .end = *start + nbytes, .reason = {}};
}

std::optional<Piece> Pool::plan_piece(std::uint64_t nbytes,
                                      std::uint64_t alignment,
                                      std::uint64_t most)
{
  auto const needed = round_up(nbytes, page_bytes());
  if (needed > most) { return std::nullopt; }
  auto size  = fixed_pieces_ ? piece_bytes_ : std::max(first_growth, counts_.backed / 4);
  size       = std::clamp(round_up(size, huge_page_bytes), needed, std::max(piece_bytes_, needed));
  auto piece = take_addresses(std::min(size, most), alignment);
  return piece ? piece : take_addresses(needed, alignment);
}

void Pool::grow(Books& books, Piece piece, std::uint64_t taken)
{
  FreeRanges::Range const whole{piece.start, piece.end};
  books.unlock();
  try {
    back(piece, backing_);
  } catch (...) {
    books.lock();
    unbacked_.insert(whole, usable_);
    throw;
  }
  books.lock();
  counts_.backed += piece.nbytes();
  counts_.pinned += piece.pinned ? piece.nbytes() : 0;
  free_.insert({whole.start + taken, whole.end}, whole);
  pieces_.emplace(whole.start, std::move(piece));
}

std::uint64_t Pool::unback_free_pieces(Books& books, std::uint64_t nbytes)
{
  std::vector<Piece> pieces;
  std::uint64_t bytes = 0;
  for (auto entry = pieces_.begin(); entry != pieces_.end() && bytes < nbytes;) {
    auto& piece = entry->second;
    if (!is_free(piece)) {
      ++entry;
      continue;
    }
    free_.remove({piece.start, piece.end});
    bytes += piece.nbytes();
    pieces.push_back(std::move(piece));
    entry = pieces_.erase(entry);
  }
  for (auto const& piece : pieces) {
    counts_.backed -= piece.nbytes();
    counts_.pinned -= piece.pinned ? piece.nbytes() : 0;
  }
  books.unlock();
  for (auto const& piece : pieces) { unback(piece, backing_.device); }
  books.lock();
  for (auto const& piece : pieces) { unbacked_.insert({piece.start, piece.end}, usable_); }
  return bytes;
}

}  // namespace datapath
