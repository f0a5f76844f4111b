// SPDX-License-Identifier: Apache-2.0
/// @file
/// The machine's NUMA nodes, read from sysfs.
#pragma once

#include <sched.h>

#include <optional>
#include <string>
#include <string_view>

namespace datapath {

/// Node of a PCI device ("00000000:3B:00.0"), -1 where unknown.
[[nodiscard]] int numa_node_of_pci(std::string_view bus_id);

/// Processors of a node that this thread may run on; nothing if the node is unknown or has none of
/// them.
[[nodiscard]] std::optional<cpu_set_t> cpus_of_node(int node);

/// Parses "0-3,8,10-11"; nothing if that is not what it is.
[[nodiscard]] std::optional<cpu_set_t> parse_cpu_list(std::string_view text);

}  // namespace datapath
