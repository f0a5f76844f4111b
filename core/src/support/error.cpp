// SPDX-License-Identifier: Apache-2.0
#include "support/error.hpp"

#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>

namespace datapath {

namespace {
thread_local ErrorInfo last_error_of_thread{DP_OK, "no error", {}, -1, 0, 0};
}

void fail(dp_status status, std::string message)
{ throw Error{ErrorInfo{status, std::move(message), {}, -1, 0, 0}}; }

ErrorInfo system_error(int os_errno,
                       std::string_view what,
                       std::string_view path,
                       std::int64_t offset,
                       std::string_view remedy)
{
  ErrorInfo info;
  info.status   = (os_errno == ENOSPC || os_errno == EDQUOT) ? DP_ERR_NO_SPACE : DP_ERR_IO;
  info.os_errno = os_errno;
  info.path     = path;
  info.offset   = offset;
  info.message  = what;
  if (!path.empty()) { info.message.append(": '").append(path).append("'"); }
  if (offset >= 0) { info.message.append(" at byte ").append(std::to_string(offset)); }
  info.message.append(": ").append(std::generic_category().message(os_errno));
  info.message.append(" (").append(errno_name(os_errno)).append(")");
  if (!remedy.empty()) { info.message.append("; ").append(remedy); }
  return info;
}

void fail_system(int os_errno,
                 std::string_view what,
                 std::string_view path,
                 std::int64_t offset,
                 std::string_view remedy)
{ throw Error{system_error(os_errno, what, path, offset, remedy)}; }

std::string_view errno_name(int os_errno) noexcept
{
  auto const* name = ::strerrorname_np(os_errno);
  return name == nullptr ? std::string_view{"unknown errno"} : std::string_view{name};
}

dp_status set_last_error(ErrorInfo info) noexcept
{
  last_error_of_thread = std::move(info);
  return last_error_of_thread.status;
}

ErrorInfo const& last_error() noexcept
{ return last_error_of_thread; }

ErrorInfo current_error() noexcept
{
  try {
    throw;
  } catch (Error const& error) {
    return error.info();
  } catch (std::bad_alloc const&) {
    return ErrorInfo{DP_ERR_BUDGET, "out of memory in the library's own structures", {}, -1, 0, 0};
  } catch (std::system_error const& error) {
    return system_error(error.code().value(), error.what());
  } catch (std::exception const& error) {
    return ErrorInfo{DP_ERR_INTERNAL, error.what(), {}, -1, 0, 0};
  } catch (...) {
    return ErrorInfo{DP_ERR_INTERNAL, "an unknown exception", {}, -1, 0, 0};
  }
}

}  // namespace datapath
