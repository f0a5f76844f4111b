// SPDX-License-Identifier: Apache-2.0
#include "support/settings.hpp"

#include "support/error.hpp"
#include "support/json.hpp"
#include "support/setting_domain.hpp"
#include "support/tuned_file.hpp"

#include <pthread.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>

namespace datapath {

namespace {

/// Values set as arguments. Leaked on purpose: threads may ask while the process ends.
struct Arguments {
  std::mutex mutex;
  std::map<std::string, std::string, std::less<>> values;
};

Arguments& arguments()
{
  static auto* const instance = [] {
    auto* const made = new Arguments;
    // A fork while another thread holds the mutex would leave it locked in the child for ever.
    ::pthread_atfork([] { arguments().mutex.lock(); },
                     [] { arguments().mutex.unlock(); },
                     [] { arguments().mutex.unlock(); });
    return made;
  }();
  return *instance;
}

std::size_t edit_distance(std::string_view a, std::string_view b)
{
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) { row[j] = j; }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    auto diagonal = row[0];
    row[0]        = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      auto const substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal               = row[j];
      row[j]                 = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

SettingRow const& find_row(std::string_view name)
{
  auto const& rows = settings_table();
  for (auto const& row : rows) {
    if (name == row.name) { return row; }
  }
  auto const nearest =
    std::min_element(rows.begin(), rows.end(), [name](auto const& a, auto const& b) {
      return edit_distance(name, a.name) < edit_distance(name, b.name);
    });
  fail(
    DP_ERR_INVALID,
    "there is no setting '" + std::string{name} + "'; the nearest one is '" + nearest->name + "'");
}

std::optional<SettingValue> from_arguments(SettingRow const& row)
{
  auto& set = arguments();
  std::lock_guard const lock{set.mutex};
  auto const found = set.values.find(row.name);
  if (found == set.values.end()) { return std::nullopt; }
  return SettingValue{found->second, "argument"};
}

std::optional<SettingValue> from_environment(SettingRow const& row)
{
  auto const variable     = setting_variable(row.name);
  char const* const value = std::getenv(variable.c_str());
  if (value == nullptr) { return std::nullopt; }
  check_setting(row, value, "environment variable " + variable);
  return SettingValue{value, "environment"};
}

std::optional<SettingValue> from_file(SettingRow const& row)
{
  auto const entries = tuned_file();
  auto const found   = entries->find(std::string_view{row.name});
  if (found == entries->end()) { return std::nullopt; }
  return SettingValue{found->second, "file"};
}

}  // namespace

std::string setting_variable(std::string_view name)
{
  std::string variable{"DATAPATH_"};
  for (char const c : name) {
    variable.push_back(c == '.' ? '_'
                                : static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  }
  return variable;
}

SettingValue setting(std::string_view name)
{
  auto const& row = find_row(name);
  if (auto value = from_arguments(row)) { return *std::move(value); }
  if (auto value = from_environment(row)) { return *std::move(value); }
  if (auto value = from_file(row)) { return *std::move(value); }
  return SettingValue{row.default_value, "default"};
}

void set_setting(std::string_view name, char const* value)
{
  auto const& row = find_row(name);
  if (value != nullptr) { check_setting(row, value, "setting " + std::string{row.name}); }
  auto& set = arguments();
  std::lock_guard const lock{set.mutex};
  if (value == nullptr) {
    set.values.erase(row.name);
  } else {
    set.values.insert_or_assign(row.name, value);
  }
}

std::uint64_t setting_bytes(std::string_view name)
{ return parse_bytes(setting(name).value); }

std::int64_t setting_integer(std::string_view name)
{ return parse_integer(setting(name).value); }

std::uint64_t setting_nanoseconds(std::string_view name)
{ return static_cast<std::uint64_t>(std::llround(parse_seconds(setting(name).value) * 1e9)); }

bool setting_flag(std::string_view name)
{ return parse_flag(setting(name).value); }

std::string settings_json()
{
  JsonWriter json;
  json.array();
  for (auto const& row : settings_table()) {
    json.object()
      .field("name", row.name)
      .field("kind", setting_kind_name(row.kind))
      .field("environment", setting_variable(row.name));
    // A bad value must not keep the page that would show it from being written.
    try {
      auto const value = setting(row.name);
      json.field("value", value.value).field("source", value.source);
    } catch (Error const& error) {
      json.null("value").field("source", "error").field("error", error.what());
    }
    json.field("default", row.default_value)
      .field("domain", row.domain)
      .field("help", row.help)
      .end();
  }
  return json.end().take();
}

}  // namespace datapath
