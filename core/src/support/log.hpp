// SPDX-License-Identifier: Apache-2.0
/// @file
/// Messages for people: kept until the host program takes them (Python's logging does), never printed by
/// a thread of the library unless log.stderr asks for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace datapath {

/// Numbers as in Python's logging.
enum class LogLevel : std::uint8_t { debug = 10, info = 20, warning = 30, error = 40 };

struct LogRecord {
  LogLevel level;
  std::string source;  ///< The part that speaks, "io.engine".
  std::string message;
};

/// From any thread, never blocks for long, never throws. The oldest records go when 1024 wait.
void log(LogLevel level, std::string_view source, std::string_view message) noexcept;

/// As `log`, but only the first time for this source and message in the process.
void log_once(LogLevel level, std::string_view source, std::string_view message) noexcept;

/// The oldest record that nobody took yet.
[[nodiscard]] std::optional<LogRecord> take_log_record();

}  // namespace datapath
