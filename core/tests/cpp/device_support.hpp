// SPDX-License-Identifier: Apache-2.0
/// @file
/// Helpers for tests of devices and memory.
#pragma once

#include "memory/pages.hpp"
#include "support/error.hpp"

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace datapath::testing {

inline std::uint64_t address_of(void const* pointer)
{ return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(pointer)); }

/// The error that a body throws; its status is DP_OK if it throws none.
template <class Body>
ErrorInfo error_of(Body&& body)
{
  try {
    body();
  } catch (Error const& error) {
    return error.info();
  }
  ErrorInfo none;
  none.status = DP_OK;
  return none;
}

template <class Body>
dp_status status_of(Body&& body)
{ return error_of(std::forward<Body>(body)).status; }

template <class Body>
std::int32_t result_of(Body&& body)
{ return error_of(std::forward<Body>(body)).cuda_result; }

/// Anonymous memory of its own.
class Mapping {
 public:
  explicit Mapping(std::size_t nbytes, int protection = PROT_READ | PROT_WRITE)
    : nbytes_{nbytes},
      data_{::mmap(nullptr, nbytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)}
  {}
  Mapping(Mapping const&)            = delete;
  Mapping& operator=(Mapping const&) = delete;
  ~Mapping() { unmap(); }

  void unmap()
  {
    if (data_ != nullptr) { ::munmap(std::exchange(data_, nullptr), nbytes_); }
  }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }
  [[nodiscard]] std::size_t nbytes() const { return nbytes_; }

 private:
  std::size_t nbytes_;
  void* data_;
};

/// Runs a body in a forked child; true if it returned true there. The child leaves without
/// teardown.
template <class Body>
bool in_child(Body&& body)
{
  auto const child = ::fork();
  if (child == 0) {
    bool good = false;
    try {
      good = body();
    } catch (...) {}
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) { return false; }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace datapath::testing
