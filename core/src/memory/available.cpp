// SPDX-License-Identifier: Apache-2.0
#include "memory/available.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>

namespace datapath {

namespace {

/// The files of a control group that tell its memory, which the two versions name differently.
struct GroupFiles {
  char const* limit;
  char const* used;
  char const* inactive_file;
  char const* active_file;
};

constexpr GroupFiles version_1{
  "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file"};
constexpr GroupFiles version_2{"memory.max", "memory.current", "inactive_file", "active_file"};

std::optional<std::uint64_t> read_number(std::string const& path)
{
  std::ifstream file{path};
  std::uint64_t number = 0;
  if (file >> number) { return number; }
  return std::nullopt;
}

/// The value behind a word at the start of a line.
std::uint64_t read_field(std::string const& path, std::string_view field)
{
  std::ifstream file{path};
  for (std::string line; std::getline(file, line);) {
    std::istringstream words{line};
    std::string name;
    std::uint64_t value = 0;
    if (words >> name >> value && name == field) { return value; }
  }
  return 0;
}

void bound_by_group(MemoryRoom& room, std::string const& folder, GroupFiles const& files)
{
  auto const limit = read_number(folder + "/" + files.limit);  // Nothing for "max".
  auto const used  = read_number(folder + "/" + files.used);
  if (!limit || !used) { return; }
  auto const stat = folder + "/memory.stat";
  auto const reclaimable =
    read_field(stat, files.inactive_file) + read_field(stat, files.active_file);
  auto const held = *used - std::min(*used, reclaimable);
  auto const left = *limit - std::min(*limit, held);
  if (left < room.bytes) { room = {left, folder + "/" + files.limit}; }
}

/// The group and all above it, up to the root of the hierarchy.
void bound_by_groups(MemoryRoom& room,
                     std::string const& root,
                     std::string path,
                     GroupFiles const& files)
{
  while (path.size() > 1) {
    bound_by_group(room, root + path, files);
    path.resize(path.rfind('/'));
  }
  // Inside a container the path may be the host's, and only the root is there.
  bound_by_group(room, root, files);
}

bool names_memory(std::string const& controllers)
{ return ("," + controllers + ",").find(",memory,") != std::string::npos; }

}  // namespace

MemoryRoom available_memory(MemorySources const& sources)
{
  MemoryRoom room{read_field(sources.proc + "/meminfo", "MemAvailable:") * 1024,
                  "MemAvailable of the machine"};
  if (room.bytes == 0) { room.bytes = std::numeric_limits<std::uint64_t>::max(); }
  std::ifstream groups{sources.proc + "/self/cgroup"};
  for (std::string line; std::getline(groups, line);) {
    auto const first  = line.find(':');
    auto const second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) { continue; }
    auto const controllers = line.substr(first + 1, second - first - 1);
    auto const path        = line.substr(second + 1);
    if (controllers.empty()) {
      bound_by_groups(room, sources.cgroup, path, version_2);
    } else if (names_memory(controllers)) {
      bound_by_groups(room, sources.cgroup + "/memory", path, version_1);
    }
  }
  return room;
}

}  // namespace datapath
