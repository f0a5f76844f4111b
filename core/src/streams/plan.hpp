// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which lanes a transfer passes, and how it is cut.
#pragma once

#include "streams/lane_id.hpp"
#include "streams/place.hpp"

#include <array>
#include <cstdint>

namespace datapath {

struct Plan {
  std::array<LaneId, 2> hops{};
  std::uint8_t hop_count{1};  ///< Two hops meet in a staging chunk.
  bool whole{false};          ///< Goes as one piece: one event then stands for all of it.
};

/// `host_is_pinned` matters only where the one end is the device and the other host memory.
[[nodiscard]] Plan plan_transfer(Place const& destination,
                                 Place const& source,
                                 bool host_is_pinned);

/// Bytes of the piece that begins at `offset`: at most a chunk, ending where the file range is aligned.
[[nodiscard]] std::uint64_t piece_bytes(Place const& destination,
                                        Place const& source,
                                        std::uint64_t offset,
                                        std::uint64_t end,
                                        std::uint64_t chunk_bytes);

/// How far the piece at `offset` lies behind an aligned byte of the file it goes to, or else comes from.
[[nodiscard]] std::uint64_t piece_misalignment(Place const& destination,
                                               Place const& source,
                                               std::uint64_t offset);

}  // namespace datapath
