// SPDX-License-Identifier: Apache-2.0
#include "support/setting_domain.hpp"

#include "support/error.hpp"

#include <charconv>
#include <cmath>

namespace datapath {

namespace {

/// Whether the value lies in "low..high", both ends of the value's own kind.
template <class Parse>
bool in_range(std::string_view domain, std::string_view value, Parse parse)
{
  auto const number = parse(value);
  auto const dots   = domain.find("..");
  if (dots == std::string_view::npos) { return true; }
  return number >= parse(domain.substr(0, dots)) && number <= parse(domain.substr(dots + 2));
}

bool is_one_of(std::string_view domain, std::string_view value)
{
  while (true) {
    auto const bar = domain.find('|');
    if (value == domain.substr(0, bar)) { return true; }
    if (bar == std::string_view::npos) { return false; }
    domain.remove_prefix(bar + 1);
  }
}

bool in_domain(SettingRow const& row, std::string_view value)
{
  switch (row.kind) {
    case SettingKind::integer:
      return in_range(row.domain, value, parse_integer);
    case SettingKind::bytes:
      return in_range(row.domain, value, parse_bytes);
    case SettingKind::seconds:
      return in_range(row.domain, value, parse_seconds);
    case SettingKind::flag:
      return (static_cast<void>(parse_flag(value)), true);
    case SettingKind::choice:
      return is_one_of(row.domain, value);
    case SettingKind::text:
      return true;
  }
  return false;
}

std::string domain_text(SettingRow const& row)
{
  switch (row.kind) {
    case SettingKind::integer:
      return std::string{"a whole number in "} + row.domain;
    case SettingKind::bytes:
      return std::string{"a size in "} + row.domain;
    case SettingKind::seconds:
      return std::string{"seconds in "} + row.domain;
    case SettingKind::flag:
      return "1 or 0";
    case SettingKind::choice:
      return std::string{"one of "} + row.domain;
    case SettingKind::text:
      return "any text";
  }
  return {};
}

}  // namespace

std::string_view setting_kind_name(SettingKind kind) noexcept
{
  switch (kind) {
    case SettingKind::integer:
      return "integer";
    case SettingKind::bytes:
      return "bytes";
    case SettingKind::seconds:
      return "seconds";
    case SettingKind::flag:
      return "flag";
    case SettingKind::choice:
      return "choice";
    case SettingKind::text:
      return "text";
  }
  return "";
}

std::int64_t parse_integer(std::string_view text)
{
  std::int64_t number{};
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) {
    fail(DP_ERR_INVALID, "'" + std::string{text} + "' is not a whole number");
  }
  return number;
}

double parse_seconds(std::string_view text)
{
  double number{};
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(number)) {
    fail(DP_ERR_INVALID, "'" + std::string{text} + "' is not a number of seconds");
  }
  return number;
}

bool parse_flag(std::string_view text)
{
  if (text == "1" || text == "true" || text == "on" || text == "yes") { return true; }
  if (text == "0" || text == "false" || text == "off" || text == "no") { return false; }
  fail(DP_ERR_INVALID,
       "'" + std::string{text} + "' is neither 1 (true, on, yes) nor 0 (false, off, no)");
}

void check_setting(SettingRow const& row, std::string_view value, std::string_view where)
{
  bool good = false;
  try {
    good = in_domain(row, value);
  } catch (Error const&) {
    good = false;
  }
  if (!good) {
    fail(DP_ERR_INVALID,
         std::string{where} + " is '" + std::string{value} + "', but " + row.name + " must be " +
           domain_text(row));
  }
}

}  // namespace datapath
