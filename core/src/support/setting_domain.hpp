// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a setting's text may be: parsing by kind and the check against the row's domain.
#pragma once

#include "support/settings.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace datapath {

/// "DATAPATH_IO_DEPTH" for "io.depth".
[[nodiscard]] std::string setting_variable(std::string_view name);

[[nodiscard]] std::string_view setting_kind_name(SettingKind kind) noexcept;

/// Each throws DP_ERR_INVALID for text of another kind.
[[nodiscard]] std::int64_t parse_integer(std::string_view text);
[[nodiscard]] double parse_seconds(std::string_view text);
[[nodiscard]] bool parse_flag(std::string_view text);

/// Throws DP_ERR_INVALID, saying `where` the value stands, what it is and what it may be.
void check_setting(SettingRow const& row, std::string_view value, std::string_view where);

}  // namespace datapath
