// SPDX-License-Identifier: Apache-2.0
/// @file
/// Threads that serve I/O: no signal is delivered to them, and a debugger shows their name.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace datapath {

/// `name` of at most 15 characters. A write past the file size limit raises SIGXFSZ, which would
/// end the process if it were not blocked here; the call's EFBIG says it all.
[[nodiscard]] std::thread start_io_thread(std::string name, std::function<void()> body);

/// The same protection for calls on the caller's own thread, for as long as it lives.
class FileSizeSignalGuard {
 public:
  FileSizeSignalGuard();
  ~FileSizeSignalGuard();
  FileSizeSignalGuard(FileSizeSignalGuard const&)            = delete;
  FileSizeSignalGuard& operator=(FileSizeSignalGuard const&) = delete;

 private:
  bool was_blocked_{false};
  bool was_pending_{false};
};

}  // namespace datapath
