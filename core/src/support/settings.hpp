// SPDX-License-Identifier: Apache-2.0
/// @file
/// Every knob of the library in one table: argument over environment over tuned file over default.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace datapath {

enum class SettingKind : std::uint8_t { integer, bytes, seconds, flag, choice, text };

/// One row of the table (settings_table.cpp). Names are "io.depth"; the variable is DATAPATH_IO_DEPTH.
struct SettingRow {
  char const* name;
  SettingKind kind;
  char const* default_value;
  char const* domain;  ///< "1..65536", or "auto|uring|threads|cufile"; empty: anything.
  char const* help;
};

[[nodiscard]] std::vector<SettingRow> const& settings_table();

struct SettingValue {
  std::string value;
  std::string source;  ///< "argument", "environment", "file" or "default".
};

/// Throws DP_ERR_INVALID for an unknown name or for a value out of its domain, naming where it stands.
[[nodiscard]] SettingValue setting(std::string_view name);
void set_setting(std::string_view name, char const* value);

[[nodiscard]] std::uint64_t setting_bytes(
  std::string_view name);  ///< "8GiB", "1 MiB" or plain digits.
[[nodiscard]] std::int64_t setting_integer(std::string_view name);
[[nodiscard]] std::uint64_t setting_nanoseconds(std::string_view name);
[[nodiscard]] bool setting_flag(std::string_view name);

/// "8GiB", "1.5 MB", "4096" in bytes: KiB and KB, K are binary alike. Throws DP_ERR_INVALID.
[[nodiscard]] std::uint64_t parse_bytes(std::string_view text);

[[nodiscard]] std::string settings_json();

}  // namespace datapath
