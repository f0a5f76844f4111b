// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads and writes as they come through the C ABI.
#pragma once

#include "abi/handles.hpp"
#include "support/error.hpp"
#include "support/owner.hpp"

#include <datapath/datapath.h>

#include <span>

namespace datapath {

/// One member function of the class behind the handle, which takes requests and gives their ticket.
template <class Handle, class Submit>
dp_status submit_requests(Submit submit,
                          Handle* handle,
                          dp_io_request const* requests,
                          std::size_t count,
                          dp_owner owner,
                          dp_ticket** out)
{
  // First, so that whatever fails below releases it.
  Owner kept{owner};
  return guard([&] {
    auto& place = result_place(out, "the ticket");
    expects(requests != nullptr || count == 0, "the array of requests is NULL");
    place = to_handle<dp_ticket>(
      (from_handle(handle).*submit)(std::span{requests, count}, std::move(kept)));
  });
}

}  // namespace datapath
