// SPDX-License-Identifier: Apache-2.0
/// @file
/// Exceptions over the status codes of datapath.h.
#pragma once

#include <datapath/datapath.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace datapath::client {

/// Root of the errors; each subclass stands for one group of status codes.
class Error : public std::runtime_error {
 public:
  explicit Error(dp_error_info const& info)
    : std::runtime_error{info.message == nullptr ? "no message" : info.message},
      path_{info.path == nullptr ? "" : info.path},
      offset_{info.offset},
      status_{info.status},
      os_errno_{info.os_errno},
      cuda_result_{info.cuda_result}
  {}

  [[nodiscard]] dp_status status() const noexcept { return status_; }
  /// errno of the failed system call, else 0.
  [[nodiscard]] int os_errno() const noexcept { return os_errno_; }
  /// CUresult of the failed driver call, else 0.
  [[nodiscard]] int cuda_result() const noexcept { return cuda_result_; }
  /// Byte offset in the file, else -1.
  [[nodiscard]] std::int64_t offset() const noexcept { return offset_; }
  /// The file, else empty.
  [[nodiscard]] std::string const& path() const noexcept { return path_; }

 private:
  std::string path_;
  std::int64_t offset_;
  dp_status status_;
  int os_errno_;
  int cuda_result_;
};

/// DP_ERR_INVALID and DP_ERR_CLOSED.
class InvalidError : public Error {
  using Error::Error;
};
/// DP_ERR_IO.
class IoError : public Error {
  using Error::Error;
};
/// DP_ERR_NO_SPACE.
class OutOfSpaceError : public IoError {
  using IoError::IoError;
};
/// DP_ERR_BUDGET.
class BudgetError : public Error {
  using Error::Error;
};
/// DP_ERR_UNSUPPORTED and DP_ERR_FORKED.
class UnsupportedError : public Error {
  using Error::Error;
};
/// DP_ERR_CUDA.
class CudaError : public Error {
  using Error::Error;
};
/// A wait ended before the work did; the work goes on.
class TimeoutError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

namespace detail {

[[noreturn]] inline void throw_last_error()
{
  dp_error_info info{};
  info.size = sizeof(info);
  dp_last_error(&info);
  switch (info.status) {
    case DP_ERR_INVALID:
    case DP_ERR_CLOSED:
      throw InvalidError{info};
    case DP_ERR_IO:
      throw IoError{info};
    case DP_ERR_NO_SPACE:
      throw OutOfSpaceError{info};
    case DP_ERR_BUDGET:
      throw BudgetError{info};
    case DP_ERR_UNSUPPORTED:
    case DP_ERR_FORKED:
      throw UnsupportedError{info};
    case DP_ERR_CUDA:
      throw CudaError{info};
    default:
      throw Error{info};
  }
}

/// Passes DP_OK, DP_PENDING and DP_TIMEOUT on; throws for errors.
inline dp_status check(dp_status status)
{
  if (status < 0) { throw_last_error(); }
  return status;
}

/// Every way into the library passes here once: a header of another age would read other structs.
inline void require_abi()
{
  static bool const same = [] {
    if (auto const loaded = dp_abi_version(); loaded != DP_ABI_VERSION) {
      throw std::runtime_error{
        "the loaded libdatapath (release " + std::string{dp_version()} + ") has ABI " +
        std::to_string(loaded) + ", but this program was compiled against ABI " +
        std::to_string(DP_ABI_VERSION) + "; build it again against the installed datapath-core"};
    }
    return true;
  }();
  static_cast<void>(same);
}

}  // namespace detail

}  // namespace datapath::client
