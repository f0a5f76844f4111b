// SPDX-License-Identifier: Apache-2.0
/// @file
/// Names of numbers, as torch's dtypes are called.
#pragma once

#include "update_arguments.hpp"

#include <string>

namespace pytorch_direct {

[[nodiscard]] Number number_of(std::string const& name);

}  // namespace pytorch_direct
