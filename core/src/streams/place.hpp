// SPDX-License-Identifier: Apache-2.0
/// @file
/// One end of a transfer.
#pragma once

#include "io/file.hpp"
#include "io/volume.hpp"
#include "support/ref.hpp"

#include <datapath/datapath.h>

#include <cstdint>

namespace datapath {

struct Place {
  std::int32_t kind{DP_HOST};  ///< dp_place_kind.
  std::uint64_t address{0};    ///< Memory only.
  Ref<File> file;
  Ref<Extent> extent;
  std::uint64_t offset{0};  ///< In the file or extent.

  [[nodiscard]] bool is_memory() const noexcept { return kind == DP_HOST || kind == DP_DEVICE; }
  [[nodiscard]] bool is_disk() const noexcept { return !is_memory(); }
};

/// Throws DP_ERR_INVALID unless `nbytes` at the place are addressable; `which` is "source" or "destination".
void check_place(Place const& place, std::uint64_t nbytes, char const* which);

/// Throws DP_ERR_INVALID if the two ends share bytes: their order would be undefined.
void check_disjoint(Place const& destination, Place const& source, std::uint64_t nbytes);

}  // namespace datapath
