// SPDX-License-Identifier: Apache-2.0
#include "support/log.hpp"

#include "support/settings.hpp"

#include <pthread.h>

#include <cstdio>
#include <deque>
#include <mutex>
#include <set>

namespace datapath {

namespace {

constexpr std::size_t max_records = 1024;

/// Leaked on purpose: threads may speak while the process ends.
struct Log {
  std::mutex mutex;
  std::deque<LogRecord> records;
  std::set<std::string> said;
};

Log& instance()
{
  static auto* const made = [] {
    auto* const fresh = new Log;
    ::pthread_atfork([] { instance().mutex.lock(); },
                     [] { instance().mutex.unlock(); },
                     [] { instance().mutex.unlock(); });
    return fresh;
  }();
  return *made;
}

char const* level_name(LogLevel level)
{
  switch (level) {
    case LogLevel::debug:
      return "debug";
    case LogLevel::info:
      return "info";
    case LogLevel::warning:
      return "warning";
    case LogLevel::error:
      return "error";
  }
  return "";
}

/// The least level that is kept; 255 keeps none.
std::uint8_t threshold()
{
  auto const name = setting("log.level").value;
  for (auto const level : {LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error}) {
    if (name == level_name(level)) { return static_cast<std::uint8_t>(level); }
  }
  return 255;
}

void store(LogLevel level, std::string_view source, std::string_view message, bool once)
{
  if (static_cast<std::uint8_t>(level) < threshold()) { return; }
  {
    auto& log = instance();
    std::lock_guard const lock{log.mutex};
    if (once && !log.said.insert(std::string{source}.append("\n").append(message)).second) {
      return;
    }
    if (log.records.size() == max_records) { log.records.pop_front(); }
    log.records.push_back(LogRecord{level, std::string{source}, std::string{message}});
  }
  if (setting_flag("log.stderr")) {
    auto const line = "datapath: " + std::string{level_name(level)} + ": " + std::string{source} +
                      ": " + std::string{message} + "\n";
    std::fputs(line.c_str(), stderr);
  }
}

void store_quietly(LogLevel level,
                   std::string_view source,
                   std::string_view message,
                   bool once) noexcept
{
  try {
    store(level, source, message, once);
  } catch (...) {
    // A message that cannot be kept must not turn work that succeeded into a fault.
  }
}

}  // namespace

void log(LogLevel level, std::string_view source, std::string_view message) noexcept
{ store_quietly(level, source, message, false); }

void log_once(LogLevel level, std::string_view source, std::string_view message) noexcept
{ store_quietly(level, source, message, true); }

std::optional<LogRecord> take_log_record()
{
  auto& log = instance();
  std::lock_guard const lock{log.mutex};
  if (log.records.empty()) { return std::nullopt; }
  auto record = std::move(log.records.front());
  log.records.pop_front();
  return record;
}

}  // namespace datapath
