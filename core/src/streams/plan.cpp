// SPDX-License-Identifier: Apache-2.0
#include "streams/plan.hpp"

#include "streams/staging.hpp"

#include <algorithm>

namespace datapath {

Plan plan_transfer(Place const& destination, Place const& source, bool host_is_pinned)
{
  using enum LaneId;
  auto const two = [](LaneId first, LaneId second) { return Plan{{first, second}, 2, false}; };
  auto const one = [](LaneId lane, bool whole) { return Plan{{lane, lane}, 1, whole}; };

  auto const takes_device_pointers = [](Place const& disk) {
    return disk.kind == DP_FILE ? disk.file->takes_device_pointers()
                                : disk.extent->takes_device_pointers();
  };
  auto const straight = [&](Place const& disk, Place const& memory) {
    return memory.kind == DP_HOST || (memory.kind == DP_DEVICE && takes_device_pointers(disk));
  };

  if (source.is_disk()) {
    if (straight(source, destination)) { return one(read, false); }
    return two(read, destination.kind == DP_DEVICE ? h2d : write);
  }
  if (destination.is_disk()) {
    return straight(destination, source) ? one(write, false) : two(d2h, write);
  }
  if (source.kind == DP_DEVICE && destination.kind == DP_DEVICE) { return one(kernel, true); }
  if (source.kind == DP_DEVICE) { return host_is_pinned ? one(d2h, true) : two(d2h, host); }
  if (destination.kind == DP_DEVICE) { return host_is_pinned ? one(h2d, true) : two(host, h2d); }
  return one(host, false);
}

std::uint64_t piece_misalignment(Place const& destination,
                                 Place const& source,
                                 std::uint64_t offset)
{
  // Writes gain most from alignment: a misaligned one has to read first.
  if (destination.is_disk()) { return (destination.offset + offset) % Staging::alignment; }
  if (source.is_disk()) { return (source.offset + offset) % Staging::alignment; }
  return 0;
}

std::uint64_t piece_bytes(Place const& destination,
                          Place const& source,
                          std::uint64_t offset,
                          std::uint64_t end,
                          std::uint64_t chunk_bytes)
{ return std::min(end - offset, chunk_bytes - piece_misalignment(destination, source, offset)); }

}  // namespace datapath
