// SPDX-License-Identifier: Apache-2.0
/// @file
/// Arrays of requests as they come through the C ABI.
#pragma once

#include "support/error.hpp"

#include <datapath/datapath.h>

#include <span>

namespace datapath {

/// Throws DP_ERR_INVALID for a NULL array that is not empty.
[[nodiscard]] inline std::span<dp_io_request const> request_span(dp_io_request const* requests,
                                                                 std::size_t count)
{
  expects(requests != nullptr || count == 0, "the array of requests is NULL");
  return {requests, count};
}

}  // namespace datapath
