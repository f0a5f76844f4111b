// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which backend serves: by name or the fastest that works, with the reasons against the others.
#pragma once

#include "io/backend.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace datapath {

/// `name` is "auto", "uring", "threads" or "cufile". A backend asked for by name that cannot serve
/// throws DP_ERR_UNSUPPORTED; "auto" appends why to `reasons`, logs it once, and takes the next
/// one.
[[nodiscard]] std::unique_ptr<Backend> choose_backend(std::string_view name,
                                                      BackendOptions const& options,
                                                      std::vector<std::string>& reasons);

/// Why a backend cannot serve here; empty if it can. Probes it each time.
[[nodiscard]] std::string why_not(std::string_view name);

}  // namespace datapath
