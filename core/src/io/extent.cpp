// SPDX-License-Identifier: Apache-2.0
#include "io/extent.hpp"

#include "io/cut.hpp"
#include "io/device_pointer.hpp"
#include "io/volume.hpp"
#include "support/error.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace datapath {

Extent::Extent(Ref<Volume> volume, std::uint64_t nbytes, std::vector<ExtentRun> runs)
  : volume_{std::move(volume)}, nbytes_{nbytes}, runs_{std::move(runs)}
{}

Extent::~Extent()
{
  // Every batch holds a reference, so nothing is in flight.
  if ((state_.load(std::memory_order_acquire) & freed_bit) == 0) { give_back(); }
}

void Extent::last_reference_gone() const noexcept
{
  if (!volume_->inherited()) { delete this; }
}

void Extent::give_back() noexcept
{ volume_->space().give_back(runs_, nbytes_); }

bool Extent::begin() noexcept
{
  auto seen = state_.load(std::memory_order_relaxed);
  do {
    if ((seen & freed_bit) != 0) { return false; }
  } while (!state_.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire));
  return true;
}

void Extent::end() noexcept
{
  if (state_.fetch_sub(1, std::memory_order_acq_rel) == (freed_bit | 1U)) { give_back(); }
}

void Extent::free()
{
  volume_->check_not_inherited();
  if (state_.fetch_or(freed_bit, std::memory_order_acq_rel) == 0) { give_back(); }
}

Ref<Ticket> Extent::read(std::span<dp_io_request const> requests, Owner owner)
{ return submit(IoOp::read, requests, std::move(owner)); }

Ref<Ticket> Extent::write(std::span<dp_io_request const> requests, Owner owner)
{ return submit(IoOp::write, requests, std::move(owner)); }

void Extent::check_range(dp_io_request const& request) const
{
  check_request(request);
  if (request.offset > nbytes_ || request.nbytes > nbytes_ - request.offset) {
    fail(DP_ERR_INVALID,
         "a request of " + std::to_string(request.nbytes) + " bytes at offset " +
           std::to_string(request.offset) + " passes the end of an extent of " +
           std::to_string(nbytes_) + " bytes");
  }
}

void Extent::cut_over_runs(std::vector<IoPiece>& pieces,
                           dp_io_request const& request,
                           IoOp op) const
{
  auto const end = request.offset + request.nbytes;
  auto run       = std::upper_bound(runs_.begin(),
                                    runs_.end(),
                                    request.offset,
                                    [](std::uint64_t offset, ExtentRun const& candidate) {
                                return offset < candidate.logical + candidate.nbytes;
                                    });
  for (auto at = request.offset; at < end; ++run) {
    auto const inside = at - run->logical;
    auto const nbytes = std::min(end - at, run->nbytes - inside);
    auto& drive       = *run->drive;
    CutRules rules;
    rules.op          = op;
    rules.chunk_bytes = volume_->engine().chunk_bytes();
    rules.direct_end  = std::numeric_limits<std::uint64_t>::max();
    rules.backend     = &drive.backend();
    rules.file        = &drive.file().descriptors();
    rules.device_memory =
      drive.backend().takes_device_pointers() && is_device_pointer(request.pointer);
    auto* const memory = static_cast<std::byte*>(request.pointer) + (at - request.offset);
    cut(pieces, {memory, nbytes, run->offset + inside}, rules);
    at += nbytes;
  }
}

Ref<Ticket> Extent::submit(IoOp op, std::span<dp_io_request const> requests, Owner owner)
{
  for (auto const& request : requests) { check_range(request); }
  auto batch = std::make_unique<IoBatch>(op, true);
  auto entry = volume_->enter();
  if (!begin()) {
    volume_->leave(entry);
    fail(DP_ERR_CLOSED, "the extent was freed");
  }
  try {
    batch->pieces().reserve(requests.size());
    for (auto const& request : requests) { cut_over_runs(batch->pieces(), request, op); }
  } catch (...) {
    end();
    volume_->leave(entry);
    throw;
  }
  return IoBatch::start(
    std::move(batch), std::move(owner), std::move(entry), Ref<IoSubject>::share(this));
}

bool Extent::takes_device_pointers() const noexcept
{
  return std::ranges::all_of(
    runs_, [](ExtentRun const& run) { return run.drive->backend().takes_device_pointers(); });
}

void Extent::settled(IoOp op, std::uint64_t nbytes) noexcept
{
  volume_->count_bytes(op, nbytes);
  end();
}

}  // namespace datapath
