// SPDX-License-Identifier: Apache-2.0
#include "memory/registered_spans.hpp"

#include "memory/pages.hpp"
#include "shim/cuda_types.hpp"
#include "support/error.hpp"
#include "support/per_process.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace datapath {

namespace {

void* pointer_to(std::uint64_t address)
{ return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)); }

void undo(Device& device, std::vector<RegisteredPart> const& parts) noexcept
{
  for (auto const& part : parts) {
    if (!part.foreign) { device.unregister_host(pointer_to(part.start)); }
  }
}

/// False if another library has registered some of the bytes.
bool try_register(Device& device, std::uint64_t start, std::uint64_t end, bool read_only)
{
  try {
    (void)device.register_host(pointer_to(start), end - start, read_only);
    return true;
  } catch (Error const& error) {
    if (error.info().cuda_result != cuda::error_host_memory_already_registered) { throw; }
    return false;
  }
}

/// Where the first registered byte of a range lies that has one but does not start with it. The
/// driver tells of single bytes only, so this tries, by halving.
std::uint64_t find_registered(Device& device,
                              std::uint64_t start,
                              std::uint64_t end,
                              bool read_only)
{
  while (end - start > 1) {
    auto const middle = start + (end - start) / 2;
    if (try_register(device, start, middle, read_only)) {
      device.unregister_host(pointer_to(start));
      start = middle;
    } else {
      end = middle;
    }
  }
  return start;
}

/// Registers a range, around what another library has registered; appends what it did.
void register_around(Device& device,
                     std::uint64_t start,
                     std::uint64_t end,
                     bool read_only,
                     std::vector<RegisteredPart>& parts)
{
  auto stop = end;
  while (start < end) {
    auto const known = device.registered_range(pointer_to(start));
    if (known.nbytes != 0) {
      auto const known_end = std::min(end, known.start + known.nbytes);
      parts.push_back({start, known_end, true});
      start = known_end;
    } else if (try_register(device, start, stop, read_only)) {
      parts.push_back({start, stop, false});
      start = stop;
    } else {
      auto const found = find_registered(device, start, stop, read_only);
      if (found == start) {
        fail(DP_ERR_CUDA,
             "register: the driver refuses " + hex_address(start) +
               " as registered already, but tells no range there; register it in one place only");
      }
      stop = found;
      continue;
    }
    stop = end;
  }
}

/// Tables by device; a device's goes when it holds nothing and nobody uses it.
struct Tables {
  std::mutex mutex;
  std::map<Device const*, std::weak_ptr<RegisteredSpans>> by_device;
};

PerProcess<Tables> tables;

}  // namespace

std::shared_ptr<RegisteredSpans> RegisteredSpans::of(Device const& device)
{
  auto& all       = tables.get();
  auto const* key = device.is_cuda() ? nullptr : &device;
  std::lock_guard const lock{all.mutex};
  std::erase_if(all.by_device, [](auto const& entry) { return entry.second.expired(); });
  auto& entry = all.by_device[key];
  auto table  = entry.lock();
  if (!table) {
    table = std::make_shared<RegisteredSpans>();
    entry = table;
  }
  return table;
}

RegistrationStats RegisteredSpans::total()
{
  auto& all = tables.get();
  std::vector<std::shared_ptr<RegisteredSpans>> live;
  {
    std::lock_guard const lock{all.mutex};
    for (auto const& [device, table] : all.by_device) {
      if (auto held = table.lock()) { live.push_back(std::move(held)); }
    }
  }
  RegistrationStats sum;
  for (auto const& table : live) {
    auto const stats = table->stats();
    sum.bytes += stats.bytes;
    sum.spans += stats.spans;
    sum.buffers += stats.buffers;
  }
  return sum;
}

RegistrationStats RegisteredSpans::stats() const
{
  std::lock_guard const lock{mutex_};
  RegistrationStats stats;
  for (auto const& [start, span] : spans_) { stats.bytes += span.end - start; }
  stats.spans   = spans_.size();
  stats.buffers = registrations_;
  return stats;
}

std::vector<RegisteredSpans::Gap> RegisteredSpans::share_spans(std::uint64_t start,
                                                               std::uint64_t end,
                                                               bool read_only,
                                                               std::vector<RegisteredPart>& parts)
{
  std::vector<Gap> gaps;
  auto position = spans_.upper_bound(start);
  if (position != spans_.begin() && std::prev(position)->second.end > start) { --position; }
  auto at = start;
  for (; position != spans_.end() && position->first < end; ++position) {
    auto& [from, span] = *position;
    if (span.read_only && !read_only) {
      fail(DP_ERR_UNSUPPORTED,
           "some of the memory is registered read-only for an earlier registration; let go of that "
           "one first, or register this read-only too");
    }
    if (from > at) { gaps.push_back({at, from}); }
    parts.push_back({from, span.end, false});
    ++span.references;
    at = span.end;
  }
  if (at < end) { gaps.push_back({at, end}); }
  return gaps;
}

std::vector<RegisteredPart> RegisteredSpans::cover(
  std::uint64_t start, std::uint64_t end, bool read_only, Device& device, SharedOwner const& owner)
{
  std::lock_guard const lock{mutex_};
  std::vector<RegisteredPart> parts;
  std::vector<RegisteredPart> made;
  try {
    for (auto const& gap : share_spans(start, end, read_only, parts)) {
      register_around(device, gap.start, gap.end, read_only, made);
    }
  } catch (...) {
    undo(device, made);
    // Only shared spans are in `parts` here, each of which somebody else still counts on.
    (void)uncover_locked(parts);
    throw;
  }
  for (auto const& part : made) {
    parts.push_back(part);
    if (!part.foreign) {
      spans_.emplace(part.start, Span{part.end, 1, read_only, Ref<Device>::share(&device), owner});
    }
  }
  ++registrations_;
  std::ranges::sort(parts, {}, &RegisteredPart::start);
  return parts;
}

std::vector<RegisteredSpans::SharedOwner> RegisteredSpans::uncover_locked(
  std::vector<RegisteredPart> const& parts) noexcept
{
  std::vector<SharedOwner> owners;
  for (auto const& part : parts) {
    if (part.foreign) { continue; }
    auto const found = spans_.find(part.start);
    if (--found->second.references != 0) { continue; }
    found->second.device->unregister_host(pointer_to(part.start));
    owners.push_back(std::move(found->second.owner));
    spans_.erase(found);
  }
  return owners;
}

std::vector<RegisteredSpans::SharedOwner> RegisteredSpans::uncover(
  std::vector<RegisteredPart> const& parts) noexcept
{
  std::lock_guard const lock{mutex_};
  --registrations_;
  return uncover_locked(parts);
}

}  // namespace datapath
