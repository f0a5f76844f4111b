// SPDX-License-Identifier: Apache-2.0
/// @file
/// How much memory this process can still have: the machine's, and what its control groups leave.
#pragma once

#include <cstdint>
#include <string>

namespace datapath {

struct MemoryRoom {
  std::uint64_t bytes{0};
  std::string bound;  ///< What sets the limit: "MemAvailable of the machine" or a group's file.
};

/// Where the kernel's files are; tests put their own there.
struct MemorySources {
  std::string proc{"/proc"};
  std::string cgroup{"/sys/fs/cgroup"};
};

/// The least of MemAvailable and, for this process's control group (version 1 or 2) and each one
/// above it, the limit less what is used. File pages that the kernel would drop do not count as
/// used.
[[nodiscard]] MemoryRoom available_memory(MemorySources const& sources = {});

}  // namespace datapath
