// SPDX-License-Identifier: Apache-2.0
#include "streams/pinned.hpp"

#include <algorithm>

namespace datapath {

namespace {

/// Registered bytes from `address` on, in its range.
std::uint64_t reach(Device& device, std::uint64_t address) noexcept
{
  auto const range = device.registered_range(reinterpret_cast<void const*>(address));
  auto const end   = range.start + range.nbytes;
  return range.nbytes == 0 || end <= address ? 0 : end - address;
}

}  // namespace

bool is_pinned(Device& device, std::uint64_t address, std::uint64_t nbytes) noexcept
{
  for (std::uint64_t done = 0; done < nbytes;) {
    auto const span = reach(device, address + done);
    if (span == 0) { return false; }
    done += std::min(span, nbytes - done);
  }
  return true;
}

void copy_pinned(Device& device,
                 std::uint64_t destination,
                 std::uint64_t source,
                 std::uint64_t nbytes,
                 CopyKind kind,
                 dp_stream stream)
{
  for (std::uint64_t done = 0; done < nbytes;) {
    auto const host = (kind == CopyKind::host_to_device ? source : destination) + done;
    // Memory that was unregistered meanwhile is the driver's to judge.
    auto const span = kind == CopyKind::device_to_device ? 0 : reach(device, host);
    auto const part = span == 0 ? nbytes - done : std::min(span, nbytes - done);
    device.copy_async(destination + done, source + done, part, kind, stream);
    done += part;
  }
}

}  // namespace datapath
