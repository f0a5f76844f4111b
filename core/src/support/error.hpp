// SPDX-License-Identifier: Apache-2.0
/// @file
/// Errors inside the library: one value type that tickets carry, one exception that wraps it.
#pragma once

#include <datapath/datapath.h>

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

namespace datapath {

/// Everything known about a fault; copied into tickets and into the C ABI's last error.
struct ErrorInfo {
  dp_status status{DP_ERR_INTERNAL};
  std::string message;
  std::string path;
  std::int64_t offset{-1};
  std::int32_t os_errno{0};
  std::int32_t cuda_result{0};
};

class Error : public std::exception {
 public:
  explicit Error(ErrorInfo info) : info_{std::move(info)} {}
  [[nodiscard]] char const* what() const noexcept override { return info_.message.c_str(); }
  [[nodiscard]] ErrorInfo const& info() const noexcept { return info_; }

 private:
  ErrorInfo info_;
};

/// A fault without file or driver: status and text.
[[noreturn]] void fail(dp_status status, std::string message);

/// A failed system call: picks DP_ERR_NO_SPACE for ENOSPC and EDQUOT, else DP_ERR_IO, and writes
/// "what: path at offset: strerror (ENAME)"; `remedy` is appended where one is known.
[[nodiscard]] ErrorInfo system_error(int os_errno,
                                     std::string_view what,
                                     std::string_view path   = {},
                                     std::int64_t offset     = -1,
                                     std::string_view remedy = {});
[[noreturn]] void fail_system(int os_errno,
                              std::string_view what,
                              std::string_view path   = {},
                              std::int64_t offset     = -1,
                              std::string_view remedy = {});

/// Throws DP_ERR_INVALID unless the caller's argument is in its domain.
inline void expects(bool condition, std::string_view message)
{
  if (!condition) { fail(DP_ERR_INVALID, std::string{message}); }
}

/// The symbol of an errno, "ENOSPC".
[[nodiscard]] std::string_view errno_name(int os_errno) noexcept;

/// Stores the calling thread's last error and returns its status; for the C ABI.
dp_status set_last_error(ErrorInfo info) noexcept;
[[nodiscard]] ErrorInfo const& last_error() noexcept;

/// The ErrorInfo of the exception in flight; to be called inside a catch block.
[[nodiscard]] ErrorInfo current_error() noexcept;

/// Runs a body behind the C ABI: no exception leaves, each becomes the thread's last error.
template <class Body>
dp_status guard(Body&& body) noexcept
{
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return DP_OK;
    } else {
      return body();
    }
  } catch (...) {
    return set_last_error(current_error());
  }
}

}  // namespace datapath
