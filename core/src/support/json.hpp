// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writes JSON for describe(); it does not read any.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace datapath {

/// Nested objects and arrays, in call order: `json.object("engine").field("depth", 128).end()`.
class JsonWriter {
 public:
  JsonWriter& object(std::string_view key = {}) { return open(key, '{', '}'); }
  JsonWriter& array(std::string_view key = {}) { return open(key, '[', ']'); }
  JsonWriter& end();

  JsonWriter& field(std::string_view key, std::string_view value);
  JsonWriter& field(std::string_view key, char const* value)
  { return field(key, std::string_view{value}); }
  template <std::integral T>
  JsonWriter& field(std::string_view key, T value)
  {
    if constexpr (std::same_as<T, bool>) {
      return raw(key, value ? "true" : "false");
    } else {
      return raw(key, std::to_string(value));
    }
  }
  JsonWriter& field(std::string_view key, double value);
  JsonWriter& null(std::string_view key) { return raw(key, "null"); }
  /// A value that is JSON already.
  JsonWriter& raw(std::string_view key, std::string_view json);

  /// The text; every object and array must be closed.
  [[nodiscard]] std::string take();

 private:
  JsonWriter& open(std::string_view key, char opening, char closing);
  void prefix(std::string_view key);

  std::string text_;
  std::string closings_;
  bool first_{true};
};

/// A string with JSON's quotes and escapes.
[[nodiscard]] std::string json_quote(std::string_view text);

}  // namespace datapath
