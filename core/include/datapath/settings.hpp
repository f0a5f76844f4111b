// SPDX-License-Identifier: Apache-2.0
/// @file
/// Settings, description and messages of the library.
#pragma once

#include <datapath/handle.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace datapath::client {

struct Setting {
  std::string value;
  std::string source;  ///< "argument", "environment", "file" or "default".
};

[[nodiscard]] inline Setting get_setting(std::string const& name)
{
  detail::require_abi();
  char* value  = nullptr;
  char* source = nullptr;
  detail::check(dp_setting_get(name.c_str(), &value, &source));
  return Setting{detail::take_string(value), detail::take_string(source)};
}

inline void set_setting(std::string const& name, std::string const& value)
{
  detail::require_abi();
  detail::check(dp_setting_set(name.c_str(), value.c_str()));
}

/// Back to environment, tuned file, default.
inline void reset_setting(std::string const& name)
{
  detail::require_abi();
  detail::check(dp_setting_set(name.c_str(), nullptr));
}

[[nodiscard]] inline std::string settings_json()
{
  detail::require_abi();
  char* json = nullptr;
  detail::check(dp_settings_json(&json));
  return detail::take_string(json);
}

[[nodiscard]] inline std::string describe(bool probe_devices = false)
{
  detail::require_abi();
  char* json = nullptr;
  detail::check(dp_describe(probe_devices ? 1 : 0, &json));
  return detail::take_string(json);
}

/// "8GiB" or "4096" in bytes.
[[nodiscard]] inline std::uint64_t parse_bytes(std::string const& text)
{
  detail::require_abi();
  std::uint64_t nbytes = 0;
  detail::check(dp_parse_bytes(text.c_str(), &nbytes));
  return nbytes;
}

struct LogMessage {
  int level;  ///< As in Python's logging: 10, 20, 30, 40.
  std::string source;
  std::string text;
};

/// The oldest message that nobody took yet.
[[nodiscard]] inline std::optional<LogMessage> take_log_message()
{
  detail::require_abi();
  std::int32_t level = 0;
  char* source       = nullptr;
  char* text         = nullptr;
  detail::check(dp_log_take(&level, &source, &text));
  if (level == 0) { return std::nullopt; }
  return LogMessage{level, detail::take_string(source), detail::take_string(text)};
}

}  // namespace datapath::client
