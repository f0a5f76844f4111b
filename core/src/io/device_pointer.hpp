// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tells device memory from host memory.
#pragma once

#include <datapath/datapath.h>

namespace datapath {

/// False as well where no driver is loaded.
[[nodiscard]] inline bool is_device_pointer(void const* pointer) noexcept
{
  int32_t ordinal = -1;
  return dp_pointer_device(pointer, &ordinal) == DP_OK && ordinal >= 0;
}

}  // namespace datapath
