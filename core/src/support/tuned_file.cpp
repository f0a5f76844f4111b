// SPDX-License-Identifier: Apache-2.0
#include "support/tuned_file.hpp"

#include "support/error.hpp"
#include "support/setting_domain.hpp"

#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>

namespace datapath {

namespace {

std::string_view trim(std::string_view text)
{
  constexpr std::string_view blanks{" \t\r"};
  auto const first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) { return {}; }
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

[[noreturn]] void reject(std::string const& where, std::string const& why)
{ fail(DP_ERR_INVALID, where + ": " + why + "; correct the line, or run 'datapath tune --reset'"); }

void add_line(TunedEntries& entries, std::string_view line, std::string const& where)
{
  line = trim(line.substr(0, line.find('#')));
  if (line.empty()) { return; }
  auto const equals = line.find('=');
  if (equals == std::string_view::npos) { reject(where, "expected 'name = value'"); }
  auto const name  = trim(line.substr(0, equals));
  auto const value = trim(line.substr(equals + 1));
  auto const& rows = settings_table();
  auto const row   = std::find_if(
    rows.begin(), rows.end(), [name](auto const& candidate) { return name == candidate.name; });
  if (row == rows.end()) { reject(where, "there is no setting '" + std::string{name} + "'"); }
  try {
    check_setting(*row, value, where);
  } catch (Error const& error) {
    reject(where, error.what());
  }
  entries.insert_or_assign(std::string{name}, std::string{value});
}

TunedEntries read(std::string const& path)
{
  TunedEntries entries;
  errno = 0;
  std::ifstream file{path};
  if (!file) {
    if (errno == ENOENT || errno == ENOTDIR || errno == EACCES) { return entries; }
    fail_system(errno, "cannot open the tuned settings", path);
  }
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    add_line(entries, line, "'" + path + "' line " + std::to_string(number));
  }
  return entries;
}

/// What tells one state of a file from another.
struct Stamp {
  ino_t inode{0};
  off_t size{-1};
  std::int64_t seconds{0};
  std::int64_t nanoseconds{0};
  bool operator==(Stamp const&) const = default;
};

Stamp stamp_of(std::string const& path)
{
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) { return {}; }
  return Stamp{status.st_ino, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

/// Leaked on purpose: threads may ask while the process ends.
struct Cache {
  std::mutex mutex;
  std::string path;
  Stamp stamp;
  std::shared_ptr<TunedEntries const> entries;
};

Cache& cache()
{
  static auto* const instance = [] {
    auto* const made = new Cache;
    ::pthread_atfork(
      [] { cache().mutex.lock(); }, [] { cache().mutex.unlock(); }, [] { cache().mutex.unlock(); });
    return made;
  }();
  return *instance;
}

}  // namespace

std::string tuned_file_path()
{
  char const* const cache_home = std::getenv("XDG_CACHE_HOME");
  // The XDG specification says that a relative path is to be ignored.
  if (cache_home != nullptr && *cache_home == '/') {
    return std::string{cache_home} + "/datapath/tuned.conf";
  }
  char const* const home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') { return {}; }
  return std::string{home} + "/.cache/datapath/tuned.conf";
}

std::shared_ptr<TunedEntries const> tuned_file()
{
  auto const path  = tuned_file_path();
  auto const stamp = path.empty() ? Stamp{} : stamp_of(path);
  auto& known      = cache();
  std::lock_guard const lock{known.mutex};
  if (!known.entries || known.path != path || known.stamp != stamp) {
    known.entries.reset();
    known.entries =
      std::make_shared<TunedEntries const>(path.empty() ? TunedEntries{} : read(path));
    known.path  = path;
    known.stamp = stamp;
  }
  return known.entries;
}

}  // namespace datapath
