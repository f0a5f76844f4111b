// SPDX-License-Identifier: Apache-2.0
#include "streams/place.hpp"

#include "support/error.hpp"

#include <limits>
#include <string>

namespace datapath {

namespace {

[[noreturn]] void refuse(char const* which, std::string const& why)
{ fail(DP_ERR_INVALID, std::string{"the transfer's "} + which + " " + why); }

bool overlap(std::uint64_t a, std::uint64_t b, std::uint64_t nbytes)
{ return a < b ? b - a < nbytes : a - b < nbytes; }

}  // namespace

void check_place(Place const& place, std::uint64_t nbytes, char const* which)
{
  constexpr auto largest_offset =
    static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  switch (place.kind) {
    case DP_HOST:
    case DP_DEVICE:
      if (nbytes > 0 && place.address == 0) { refuse(which, "is memory at address 0"); }
      if (nbytes > std::numeric_limits<std::uint64_t>::max() - place.address) {
        refuse(which, "reaches past the end of the address space");
      }
      return;
    case DP_FILE:
      if (!place.file) { refuse(which, "is a file, but its handle is NULL"); }
      if (place.offset > largest_offset || nbytes > largest_offset - place.offset) {
        refuse(which, "reaches past the largest file offset, 2^63 - 1");
      }
      return;
    case DP_EXTENT: {
      if (!place.extent) { refuse(which, "is an extent, but its handle is NULL"); }
      auto const size = place.extent->nbytes();
      if (place.offset > size || nbytes > size - place.offset) {
        refuse(which,
               "reaches past its extent: " + std::to_string(nbytes) + " bytes at " +
                 std::to_string(place.offset) + " of " + std::to_string(size));
      }
      return;
    }
  }
  refuse(
    which,
    "has kind " + std::to_string(place.kind) + "; use DP_HOST, DP_DEVICE, DP_FILE or DP_EXTENT");
}

void check_disjoint(Place const& destination, Place const& source, std::uint64_t nbytes)
{
  auto const same_memory = destination.is_memory() && source.is_memory() &&
                           overlap(destination.address, source.address, nbytes);
  auto const same_file   = destination.kind == DP_FILE && source.kind == DP_FILE &&
                           destination.file == source.file &&
                           overlap(destination.offset, source.offset, nbytes);
  auto const same_extent = destination.kind == DP_EXTENT && source.kind == DP_EXTENT &&
                           destination.extent == source.extent &&
                           overlap(destination.offset, source.offset, nbytes);
  if (nbytes > 0 && (same_memory || same_file || same_extent)) {
    fail(DP_ERR_INVALID,
         "source and destination of the transfer share bytes; move them through a third place");
  }
}

}  // namespace datapath
