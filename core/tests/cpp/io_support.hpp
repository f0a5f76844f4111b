// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the tests of io/ share: folders that vanish, engines by backend, waiting with an end.
#pragma once

#include "io/engine.hpp"
#include "io/file.hpp"
#include "io/volume.hpp"
#include "patience.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace datapath::io_testing {

using testing::patience_ns;

/// A folder of its own, gone at the end.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(std::string const& parent = default_parent())
  {
    auto name = parent + "/datapath-test-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) { throw std::runtime_error{"mkdtemp in " + parent}; }
    path_ = name;
  }
  ~TemporaryFolder()
  {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(TemporaryFolder const&)            = delete;
  TemporaryFolder& operator=(TemporaryFolder const&) = delete;

  [[nodiscard]] std::string const& path() const { return path_; }
  [[nodiscard]] std::string file(std::string const& name) const { return path_ + "/" + name; }

  static std::string default_parent()
  {
    char const* const set = std::getenv("TMPDIR");
    return set != nullptr && *set != '\0' ? set : "/tmp";
  }

 private:
  std::string path_;
};

/// Memory at a chosen distance from a page's start.
class Memory {
 public:
  explicit Memory(std::size_t nbytes, std::size_t misalignment = 0)
    : nbytes_{nbytes}, misalignment_{misalignment}
  {
    constexpr std::size_t page = 4096;
    auto const whole           = (nbytes + misalignment + page) / page * page;
    base_.reset(static_cast<std::byte*>(std::aligned_alloc(page, whole)));
  }
  [[nodiscard]] std::byte* data() const { return base_.get() + misalignment_; }
  [[nodiscard]] std::size_t size() const { return nbytes_; }
  std::byte& operator[](std::size_t at) const { return data()[at]; }
  void fill(std::byte value) const { std::fill(data(), data() + nbytes_, value); }
  /// Bytes that say where they stand and which seed they come from.
  void fill_pattern(std::uint64_t seed) const
  {
    auto state = seed * 0x9E3779B97F4A7C15ULL + 1;
    for (std::size_t i = 0; i < nbytes_; ++i) {
      state ^= state << 13U;
      state ^= state >> 7U;
      state ^= state << 17U;
      data()[i] = static_cast<std::byte>(state >> 32U);
    }
  }
  [[nodiscard]] bool all(std::byte value) const
  {
    return std::all_of(data(), data() + nbytes_, [value](std::byte b) { return b == value; });
  }
  friend bool operator==(Memory const& a, Memory const& b)
  { return a.size() == b.size() && std::equal(a.data(), a.data() + a.size(), b.data()); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::size_t nbytes_;
  std::size_t misalignment_;
  std::unique_ptr<std::byte, Free> base_;
};

inline dp_io_request request(Memory const& memory, std::uint64_t offset)
{ return {memory.data(), memory.size(), offset}; }

/// The bytes moved, or the error thrown; fails the test instead of hanging.
inline std::uint64_t result(Ref<Ticket> const& ticket)
{
  if (!ticket->wait(patience_ns)) { throw std::runtime_error{"a ticket never ended"}; }
  return ticket->bytes();
}

template <class Target>
std::uint64_t read(Target& target, Memory const& memory, std::uint64_t offset)
{
  auto const one = request(memory, offset);
  return result(target.read({&one, 1}, Owner{}));
}

template <class Target>
std::uint64_t write(Target& target, Memory const& memory, std::uint64_t offset)
{
  auto const one = request(memory, offset);
  return result(target.write({&one, 1}, Owner{}));
}

/// The error that a body throws; its status is DP_OK if it throws none.
inline ErrorInfo error_of(std::function<void()> const& body)
{
  try {
    body();
  } catch (Error const& error) {
    return error.info();
  }
  return ErrorInfo{DP_OK, "no error", {}, -1, 0, 0};
}

/// An owner that counts its releases.
inline dp_owner counting_owner(std::atomic<int>& count)
{
  return {[](void* context) { static_cast<std::atomic<int>*>(context)->fetch_add(1); }, &count};
}

/// Runs once for each backend that works everywhere; io_uring is skipped with its reason where it
/// does not.
class EachBackend : public ::testing::TestWithParam<char const*> {
 protected:
  void SetUp() override
  {
    if (std::string{GetParam()} != "threads") {
      auto const why = error_of([this] { (void)engine(); });
      if (why.status == DP_ERR_UNSUPPORTED) { GTEST_SKIP() << why.message; }
    }
  }

  [[nodiscard]] Ref<Engine> engine(EngineOptions options = {}) const
  {
    options.backend = GetParam();
    return make_ref<Engine>(std::move(options));
  }
  [[nodiscard]] Ref<Engine> faulty_engine(std::string faults) const
  {
    EngineOptions options;
    options.faults = std::move(faults);
    return engine(std::move(options));
  }

  TemporaryFolder folder_;
};

#define FOR_EACH_BACKEND(suite)                                                    \
  INSTANTIATE_TEST_SUITE_P(                                                        \
    Backends, suite, ::testing::Values("threads", "uring"), [](auto const& each) { \
      return std::string{each.param};                                              \
    })

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SKIP_WHERE_CHILDREN_HAVE_NO_THREADS() \
  GTEST_SKIP() << "a sanitizer's own locks may be held for ever in a forked child with threads"
#else
#define SKIP_WHERE_CHILDREN_HAVE_NO_THREADS() \
  do {                                        \
  } while (false)
#endif

/// What a child process ended with: its exit code, or minus the signal.
[[nodiscard]] int run_in_child(std::function<int()> const& body);

}  // namespace datapath::io_testing
