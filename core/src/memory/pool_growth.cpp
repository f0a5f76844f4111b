// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which memory a pool has: new pieces within budget and what the system leaves, and pieces given
/// back.
#include "memory/available.hpp"
#include "memory/pages.hpp"
#include "memory/pool.hpp"
#include "support/error.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
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
  auto const one_piece = nbytes <= piece_bytes_;
  if (!one_piece) {
    if (auto const address = take_spanning(nbytes, alignment)) { return address; }
  }
  auto const free_pieces = free_pieces_bytes();
  std::optional<Growth> growth;
  if (one_piece) {
    // Small free pieces are exchanged for one that holds the request, so that memory does not grow
    // while enough of it lies idle.
    auto const left = room();
    if (free_pieces >= nbytes || (left < nbytes && left + free_pieces >= nbytes)) {
      unback_free_pieces(books, nbytes);
    }
    growth = plan_piece(nbytes);
  }
  if (!growth) { growth = plan_span(nbytes, alignment); }
  if (!growth && free_pieces != 0) {
    unback_free_pieces(books, budget_);
    growth = one_piece ? plan_piece(nbytes) : plan_span(nbytes, alignment);
  }
  if (!growth) { return take_spanning(nbytes, alignment); }
  grow(books, *growth);
  return growth->request.start;
}

std::optional<Pool::Growth> Pool::plan_piece(std::uint64_t nbytes)
{
  auto const needed = round_up(nbytes, page_bytes());
  auto const left   = room();
  if (needed > left) { return std::nullopt; }
  auto size  = fixed_pieces_ ? piece_bytes_ : std::max(first_growth, counts_.backed / 4);
  size       = std::clamp(round_up(size, huge_page_bytes), needed, std::max(piece_bytes_, needed));
  size       = std::min(size, left);
  auto start = unbacked_.take(size, huge_page_bytes);
  if (!start) {
    size  = needed;
    start = unbacked_.take(size, huge_page_bytes);
  }
  if (!start) { return std::nullopt; }
  Growth growth;
  growth.request = {*start, *start + nbytes};
  cut_into_pieces({*start, *start + size}, growth.pieces);
  return growth;
}

std::optional<std::uint64_t> Pool::find_place(std::uint64_t nbytes,
                                              std::uint64_t alignment,
                                              bool with_unbacked) const
{
  auto const& free     = free_.by_start();
  auto const& unbacked = unbacked_.by_start();
  auto next_free       = free.begin();
  auto next_unbacked   = with_unbacked ? unbacked.begin() : unbacked.end();
  std::optional<std::uint64_t> best;
  auto best_missing = std::numeric_limits<std::uint64_t>::max();

  FreeRanges::Range run{0, 0};
  std::vector<std::uint64_t> starts;
  auto const judge_run = [&] {
    if (run.end - run.start < nbytes) { return; }
    starts.push_back(round_down(run.end - nbytes, alignment));
    for (auto const candidate : starts) {
      auto const start = round_up(candidate, alignment);
      if (start < run.start || start + nbytes > run.end) { continue; }
      auto const missing = with_unbacked ? unbacked_.overlap({start, start + nbytes}) : 0;
      if (missing < best_missing) {
        best         = start;
        best_missing = missing;
      }
    }
  };
  while (next_free != free.end() || next_unbacked != unbacked.end()) {
    auto const take_free = next_unbacked == unbacked.end() ||
                           (next_free != free.end() && next_free->first < next_unbacked->first);
    auto& next           = take_free ? next_free : next_unbacked;
    if (next->first != run.end) {
      judge_run();
      run = {next->first, next->first};
      starts.clear();
    }
    starts.push_back(next->first);
    run.end = next->second;
    ++next;
  }
  judge_run();
  return best;
}

std::optional<std::uint64_t> Pool::take_spanning(std::uint64_t nbytes, std::uint64_t alignment)
{
  auto const start = find_place(nbytes, alignment, false);
  if (start) { free_.take_at({*start, *start + nbytes}); }
  return start;
}

std::optional<Pool::Growth> Pool::plan_span(std::uint64_t nbytes, std::uint64_t alignment)
{
  auto const start = find_place(nbytes, alignment, true);
  if (!start) { return std::nullopt; }
  Growth growth;
  growth.request = {*start, *start + nbytes};
  // Unbacked ranges begin and end at pages, so rounding outwards stays inside them.
  FreeRanges::Range const pages{round_down(*start, page_bytes()),
                                round_up(*start + nbytes, page_bytes())};
  std::vector<FreeRanges::Range> missing;
  std::uint64_t missing_bytes = 0;
  for (auto const& [from, to] : unbacked_.by_start()) {
    FreeRanges::Range const part{std::max(from, pages.start), std::min(to, pages.end)};
    if (part.start < part.end) {
      missing.push_back(part);
      missing_bytes += part.end - part.start;
    }
  }
  if (missing_bytes > room()) { return std::nullopt; }
  for (auto const& part : missing) {
    unbacked_.take_at(part);
    cut_into_pieces(part, growth.pieces);
  }
  return growth;
}

void Pool::cut_into_pieces(FreeRanges::Range range, std::vector<Piece>& pieces) const
{
  while (range.start < range.end) {
    auto const end = std::min(range.end, range.start + piece_bytes_);
    pieces.push_back({.start = range.start, .end = end, .reason = {}});
    range.start = end;
  }
}

void Pool::grow(Books& books, Growth& growth)
{
  // The free parts of the request are taken now, so that nobody else gets them meanwhile.
  auto const request = growth.request;
  std::vector<FreeRanges::Range> taken;
  for (auto const& [start, end] : free_.by_start()) {
    FreeRanges::Range const part{std::max(start, request.start), std::min(end, request.end)};
    if (part.start < part.end) { taken.push_back(part); }
  }
  for (auto const& part : taken) { free_.take_at(part); }
  books.unlock();
  try {
    back(growth.pieces, backing_);
  } catch (...) {
    books.lock();
    for (auto const& piece : growth.pieces) { unbacked_.insert({piece.start, piece.end}, usable_); }
    for (auto const& part : taken) { insert_free(part); }
    throw;
  }
  books.lock();
  for (auto const& piece : growth.pieces) {
    pieces_.emplace(piece.start, piece);
    counts_.backed += piece.nbytes();
    counts_.pinned += piece.pinned ? piece.nbytes() : 0;
    // What the request does not take is free.
    FreeRanges::Range const limits{piece.start, piece.end};
    auto const before = std::clamp(request.start, piece.start, piece.end);
    auto const after  = std::clamp(request.end, piece.start, piece.end);
    if (request.start == request.end) {
      free_.insert(limits, limits);
    } else {
      if (piece.start < before) { free_.insert({piece.start, before}, limits); }
      if (after < piece.end) { free_.insert({after, piece.end}, limits); }
    }
  }
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
    free_.take_at({piece.start, piece.end});
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
