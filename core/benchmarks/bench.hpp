// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the native benchmarks share: a clock, and errors as exceptions.
#pragma once

#include <datapath/datapath.h>

#include <chrono>
#include <stdexcept>

/// Seconds of a clock that never goes back.
inline double now()
{
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline void check(dp_status status)
{
  if (status >= 0) { return; }
  dp_error_info error{};
  error.size = sizeof(error);
  dp_last_error(&error);
  throw std::runtime_error{error.message};
}
