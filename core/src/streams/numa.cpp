// SPDX-License-Identifier: Apache-2.0
#include "streams/numa.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>

namespace datapath {

int numa_node_of_pci(std::string_view bus_id)
{
  // The driver writes the domain with eight digits and capitals, sysfs with four and small letters.
  std::string name{bus_id};
  if (auto const colon = name.find(':'); colon != std::string::npos && colon > 4) {
    name.erase(0, colon - 4);
  }
  std::ranges::transform(name, name.begin(), [](unsigned char letter) {
    return static_cast<char>(std::tolower(letter));
  });
  std::ifstream file{"/sys/bus/pci/devices/" + name + "/numa_node"};
  int node = -1;
  return file >> node ? node : -1;
}

std::optional<cpu_set_t> parse_cpu_list(std::string_view text)
{
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) {
    text.remove_suffix(1);
  }
  auto const number = [&text]() -> std::optional<std::size_t> {
    std::size_t value       = 0;
    auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || value >= CPU_SETSIZE) { return std::nullopt; }
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return value;
  };
  while (!text.empty()) {
    auto const first = number();
    auto last        = first;
    if (first && text.starts_with('-')) {
      text.remove_prefix(1);
      last = number();
    }
    if (!first || !last || (!text.empty() && !text.starts_with(','))) { return std::nullopt; }
    if (!text.empty()) { text.remove_prefix(1); }
    for (auto cpu = *first; cpu <= *last; ++cpu) { CPU_SET(cpu, &cpus); }
  }
  return cpus;
}

std::optional<cpu_set_t> cpus_of_node(int node)
{
  if (node < 0) { return std::nullopt; }
  std::ifstream file{"/sys/devices/system/node/node" + std::to_string(node) + "/cpulist"};
  std::string text;
  if (!std::getline(file, text)) { return std::nullopt; }
  auto const of_node = parse_cpu_list(text);
  cpu_set_t allowed;
  if (!of_node || ::sched_getaffinity(0, sizeof allowed, &allowed) != 0) { return std::nullopt; }
  cpu_set_t both;
  CPU_AND(&both, &*of_node, &allowed);
  if (CPU_COUNT(&both) == 0) { return std::nullopt; }
  return both;
}

}  // namespace datapath
