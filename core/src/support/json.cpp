// SPDX-License-Identifier: Apache-2.0
#include "support/json.hpp"

#include <array>
#include <cmath>
#include <cstdio>

namespace datapath {

std::string json_quote(std::string_view text)
{
  std::string out{"\""};
  for (char const c : text) {
    if (c == '"' || c == '\\') {
      out.append({'\\', c});
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(c));
      out.append(escape.data());
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
  return out;
}

void JsonWriter::prefix(std::string_view key)
{
  if (!first_) { text_.push_back(','); }
  first_ = false;
  if (!key.empty()) { text_.append(json_quote(key)).push_back(':'); }
}

JsonWriter& JsonWriter::open(std::string_view key, char opening, char closing)
{
  prefix(key);
  text_.push_back(opening);
  closings_.push_back(closing);
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::end()
{
  text_.push_back(closings_.back());
  closings_.pop_back();
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::field(std::string_view key, std::string_view value)
{ return raw(key, json_quote(value)); }

JsonWriter& JsonWriter::field(std::string_view key, double value)
{
  if (!std::isfinite(value)) { return null(key); }
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "%.9g", value);
  return raw(key, digits.data());
}

JsonWriter& JsonWriter::raw(std::string_view key, std::string_view json)
{
  prefix(key);
  text_.append(json);
  return *this;
}

std::string JsonWriter::take()
{ return std::move(text_); }

}  // namespace datapath
