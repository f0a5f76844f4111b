// SPDX-License-Identifier: Apache-2.0
#include "support/describe.hpp"

#include "support/error.hpp"
#include "support/settings.hpp"

#include <map>

namespace datapath {

namespace {

std::map<std::string, DescribeSection>& sections()
{
  static auto& all = *new std::map<std::string, DescribeSection>;
  return all;
}

/// A section is written on its own, so that one that throws halfway leaves the rest well-formed.
std::string write_section(DescribeSection section, bool probe_devices)
{
  JsonWriter json;
  json.object();
  try {
    section(json, probe_devices);
    return json.end().take();
  } catch (Error const& error) {
    JsonWriter failed;
    return failed.object().field("error", error.what()).end().take();
  }
}

}  // namespace

DescribeRegistration::DescribeRegistration(char const* name, DescribeSection section)
{ sections().emplace(name, section); }

std::string describe(bool probe_devices)
{
  JsonWriter json;
  json.object().field("version", DATAPATH_VERSION).field("abi", DP_ABI_VERSION);
  for (auto const& [name, section] : sections()) {
    json.raw(name, write_section(section, probe_devices));
  }
  return json.raw("settings", settings_json()).end().take();
}

}  // namespace datapath
