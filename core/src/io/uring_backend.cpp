// SPDX-License-Identifier: Apache-2.0
#include "io/uring_backend.hpp"

#if DATAPATH_HAVE_LIBURING

#include "io/uring_setup.hpp"

#include <algorithm>

namespace datapath {

namespace {

/// Fewer pieces than this are not worth the wake-up of one more thread, unless they are large: then
/// the copy that a page cache makes of each is work for several processors.
constexpr std::size_t pieces_a_ring       = 32;
constexpr std::size_t large_pieces_a_ring = 2;
constexpr std::uint64_t large_piece       = 128U << 10U;

}  // namespace

UringBackend::UringBackend(BackendOptions const& options)
{
  auto const share = std::max<std::uint64_t>(options.max_inflight_bytes / options.threads, 1);
  for (std::uint32_t i = 0; i < options.threads; ++i) {
    rings_.push_back(std::make_unique<UringRing>(i, options.depth, share));
  }
}

UringRing& UringBackend::least_loaded() noexcept
{
  // From another ring each time: equals take turns.
  auto const first = turn_.fetch_add(1, std::memory_order_relaxed);
  auto* best       = rings_[first % rings_.size()].get();
  for (std::size_t i = 1; i < rings_.size() && best->load() != 0; ++i) {
    auto* const other = rings_[(first + i) % rings_.size()].get();
    if (other->load() < best->load()) { best = other; }
  }
  return *best;
}

void UringBackend::submit(IoList pieces)
{
  if (pieces.empty()) { return; }
  auto const unit  = pieces.front()->nbytes >= large_piece ? large_pieces_a_ring : pieces_a_ring;
  auto const parts = std::clamp<std::size_t>(pieces.size() / unit, 1, rings_.size());
  if (parts == 1) { return least_loaded().submit(pieces); }
  auto const each = (pieces.size() + parts - 1) / parts;
  while (!pieces.empty()) {
    IoList part;
    while (part.size() < each && !pieces.empty()) { part.push_back(*pieces.pop_front()); }
    least_loaded().submit(part);
  }
}

bool UringBackend::stop()
{
  bool all = true;
  for (auto& ring : rings_) { all = ring->stop() && all; }
  return all;
}

bool UringBackend::on_own_thread() const noexcept
{
  return std::any_of(
    rings_.begin(), rings_.end(), [](auto const& ring) { return ring->on_own_thread(); });
}

std::uint64_t UringBackend::attempts_ended() const noexcept
{
  std::uint64_t sum = 0;
  for (auto const& ring : rings_) { sum += ring->attempts_ended(); }
  return sum;
}

std::uint64_t UringBackend::load() const noexcept
{
  std::uint64_t sum = 0;
  for (auto const& ring : rings_) { sum += ring->load(); }
  return sum;
}

std::uint64_t UringBackend::lost() const noexcept
{
  std::uint64_t sum = 0;
  for (auto const& ring : rings_) { sum += ring->lost(); }
  return sum;
}

void UringBackend::describe(JsonWriter& json) const
{
  json.field("rings", static_cast<std::uint64_t>(rings_.size()))
    .field("setup_flags", ring_flag_names(rings_.front()->flags()))
    .field("queued", load())
    .field("lost_in_kernel", lost());
}

}  // namespace datapath

#endif
