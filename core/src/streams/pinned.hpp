// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which host memory the device can copy from by itself.
#pragma once

#include "streams/device.hpp"

#include <cstdint>

namespace datapath {

/// Every byte lies in a registered range.
[[nodiscard]] bool is_pinned(Device& device, std::uint64_t address, std::uint64_t nbytes) noexcept;

/// Enqueues a copy between pinned host memory and the device, cut where registered ranges meet: the
/// driver refuses a single copy over two of them.
void copy_pinned(Device& device,
                 std::uint64_t destination,
                 std::uint64_t source,
                 std::uint64_t nbytes,
                 CopyKind kind,
                 dp_stream stream);

}  // namespace datapath
