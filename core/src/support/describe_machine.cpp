// SPDX-License-Identifier: Apache-2.0
/// @file
/// The sections "machine" and "limits" of describe: facts that decide what the library can do here.
#include "support/describe.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

namespace datapath {

namespace {

/// The first line of a file of /proc or /sys; empty when it cannot be read.
std::string first_line(std::string const& path)
{
  std::ifstream file{path};
  std::string line;
  std::getline(file, line);
  return line;
}

/// "[always] madvise never" names the choice in force by brackets.
std::string bracketed(std::string const& line)
{
  auto const open  = line.find('[');
  auto const close = line.find(']');
  if (open == std::string::npos || close == std::string::npos) { return line; }
  return line.substr(open + 1, close - open - 1);
}

/// A field of /proc/meminfo in bytes; 0 when it is not there.
std::uint64_t meminfo_bytes(std::string const& field)
{
  std::ifstream file{"/proc/meminfo"};
  std::string name;
  std::uint64_t kibibytes = 0;
  std::string rest;
  while (file >> name >> kibibytes && std::getline(file, rest)) {
    if (name == field + ":") { return kibibytes * 1024; }
  }
  return 0;
}

std::uint64_t numa_nodes()
{
  std::error_code ignored;
  std::uint64_t count = 0;
  for (auto const& entry :
       std::filesystem::directory_iterator{"/sys/devices/system/node", ignored}) {
    auto const name = entry.path().filename().string();
    if (name.size() > 4 && name.starts_with("node") &&
        name.find_first_not_of("0123456789", 4) == std::string::npos) {
      ++count;
    }
  }
  return std::max<std::uint64_t>(count, 1);
}

void write_limit(JsonWriter& json, std::string_view key, decltype(RLIMIT_MEMLOCK) resource)
{
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    json.null(key);
  } else {
    json.field(key, static_cast<std::uint64_t>(limit.rlim_cur));
  }
}

void describe_machine(JsonWriter& json, bool /*probe_devices*/)
{
  utsname kernel{};
  ::uname(&kernel);
  cpu_set_t processors;
  CPU_ZERO(&processors);
  auto const usable = ::sched_getaffinity(0, sizeof(processors), &processors) == 0
                        ? CPU_COUNT(&processors)
                        : static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  json.field("kernel", kernel.release)
    .field("architecture", kernel.machine)
    .field("processors", usable)
    .field("numa_nodes", numa_nodes())
    .field("page_bytes", static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)))
    .field("memory_total", meminfo_bytes("MemTotal"))
    .field("memory_available", meminfo_bytes("MemAvailable"))
    .field("huge_pages", bracketed(first_line("/sys/kernel/mm/transparent_hugepage/enabled")));
}

void describe_limits(JsonWriter& json, bool /*probe_devices*/)
{
  write_limit(json, "memory_locked", RLIMIT_MEMLOCK);
  write_limit(json, "open_files", RLIMIT_NOFILE);
  auto const uring_disabled = first_line("/proc/sys/kernel/io_uring_disabled");
  if (uring_disabled.empty()) {
    json.null("io_uring_disabled");
  } else {
    json.field("io_uring_disabled", uring_disabled);
  }
  json.field("udev_readable", ::access("/run/udev", R_OK) == 0);
}

DescribeRegistration const machine{"machine", describe_machine};
DescribeRegistration const limits{"limits", describe_limits};

}  // namespace

}  // namespace datapath
