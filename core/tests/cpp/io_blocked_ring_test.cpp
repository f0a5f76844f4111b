// SPDX-License-Identifier: Apache-2.0
#include "io_support.hpp"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>

namespace datapath::io_testing {
namespace {

/// Runs `install` with a filter that answers a system call with `error`.
template <class Install>
bool forbid(long number, unsigned error, Install install)
{
  sock_filter program[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog const filter{static_cast<unsigned short>(std::size(program)), program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && install(filter);
}

/// From here on the calling thread and those that it starts get `error` from a system call.
bool forbid(long number, unsigned error)
{
  return forbid(number, error, [](sock_fprog const& filter) {
    return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
  });
}

/// The same for the threads that run already.
bool forbid_everywhere(long number, unsigned error)
{
  return forbid(number, error, [](sock_fprog const& filter) {
    return ::syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) ==
           0;
  });
}

constexpr char const* ring_switch = "/proc/sys/kernel/io_uring_disabled";

/// From here on the calling process reads the file's content in the place of the system's switch.
bool show_switch(std::string const& file)
{
  return ::unshare(CLONE_NEWNS) == 0 &&
         ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount(file.c_str(), ring_switch, nullptr, MS_BIND, nullptr) == 0;
}

constexpr int cannot_forbid = 77;

/// What an engine does where a call is forbidden: 0, or the step that went wrong.
int use_blocked(std::string const& path, long number, unsigned error, char const* word)
{
  if (!forbid(number, error)) { return cannot_forbid; }
  EngineOptions by_name;
  by_name.backend    = "uring";
  auto const refused = error_of([&] { (void)make_ref<Engine>(by_name); });
  if (refused.status != DP_ERR_UNSUPPORTED) { return 1; }
  if (refused.message.find(word) == std::string::npos) {
    std::fprintf(stderr, "%s\n", refused.message.c_str());
    return 2;
  }
  EngineOptions automatic;
  automatic.backend = "auto";
  auto const engine = make_ref<Engine>(automatic);
  auto const text   = engine->describe();
  if (text.find("\"backend\":\"threads\"") == std::string::npos) { return 3; }
  if (text.find("uring cannot serve") == std::string::npos) { return 4; }
  auto const file = engine->open(path, "w+");
  Memory const out{100'000};
  Memory const in{100'000};
  out.fill_pattern(1);
  (void)write(*file, out, 0);
  (void)read(*file, in, 0);
  return in == out ? 0 : 5;
}

struct BlockedRing : ::testing::Test {
  TemporaryFolder folder_;

  /// `setting`: what the system's switch for rings shows; empty for what it is.
  void expect_fallback(long number,
                       unsigned error,
                       char const* word,
                       std::string const& setting = {})
  {
    SKIP_WHERE_CHILDREN_HAVE_NO_THREADS();
    auto const shown = folder_.file("switch");
    std::ofstream{shown} << setting << "\n";
    auto const code = run_in_child([&] {
      if (!setting.empty() && !show_switch(shown)) { return cannot_forbid; }
      return use_blocked(folder_.file("file"), number, error, word);
    });
    if (code == cannot_forbid) {
      GTEST_SKIP() << "neither a seccomp filter nor a mount of its own can be had here";
    }
    EXPECT_EQ(code, 0);
  }
};

#if DATAPATH_HAVE_LIBURING
constexpr char const* enosys_word = "ENOSYS";
constexpr char const* sysctl_word = "sysctl kernel.io_uring_disabled is 2";
#else
constexpr char const* enosys_word = "no io_uring backend";
constexpr char const* sysctl_word = "no io_uring backend";
#endif

/// What an error of a call that is not permitted speaks of, as the system is.
char const* eperm_word()
{
#if DATAPATH_HAVE_LIBURING
  int disabled = 0;
  std::ifstream{ring_switch} >> disabled;
  return disabled == 0 ? "seccomp" : "sysctl";
#else
  return "no io_uring backend";
#endif
}

TEST_F(BlockedRing, setup_forbidden_by_a_container_falls_back_and_names_seccomp)
{ expect_fallback(__NR_io_uring_setup, EPERM, eperm_word()); }

TEST_F(BlockedRing, setup_switched_off_by_the_administrator_falls_back_and_names_the_sysctl)
{ expect_fallback(__NR_io_uring_setup, EPERM, sysctl_word, "2"); }

TEST_F(BlockedRing, setup_missing_in_a_sandbox_falls_back_and_names_the_reason)
{ expect_fallback(__NR_io_uring_setup, ENOSYS, enosys_word); }

TEST_F(BlockedRing, setup_allowed_but_entering_forbidden_falls_back_too)
{ expect_fallback(__NR_io_uring_enter, EPERM, eperm_word()); }

#if DATAPATH_HAVE_LIBURING
TEST_F(BlockedRing, entering_forbidden_later_fails_requests_and_the_engine_closes)
{
  SKIP_WHERE_CHILDREN_HAVE_NO_THREADS();
  auto const code = run_in_child([&] {
    EngineOptions options;
    options.backend = "uring";
    Ref<Engine> engine;
    if (error_of([&] { engine = make_ref<Engine>(options); }).status != DP_OK) {
      return cannot_forbid;
    }
    auto const file = engine->open(folder_.file("file"), "w+");
    Memory const out{100'000};
    out.fill_pattern(1);
    if (write(*file, out, 0) != out.size()) { return 1; }
    if (!forbid_everywhere(__NR_io_uring_enter, EPERM)) { return cannot_forbid; }
    auto const failed = error_of([&] { (void)write(*file, out, 0); });
    if (failed.status != DP_ERR_IO || failed.os_errno != EPERM) { return 2; }
    // Nothing was left with the kernel.
    if (engine->describe().find("\"lost_in_kernel\":0") == std::string::npos) { return 3; }
    file->close();
    engine->close();
    return 0;
  });
  if (code == cannot_forbid) { GTEST_SKIP() << "no ring, or no seccomp filter, can be had here"; }
  EXPECT_EQ(code, 0);
}
#endif

TEST_F(BlockedRing, lack_of_locked_memory_falls_back_and_names_the_limit)
{
#if DATAPATH_HAVE_LIBURING
  expect_fallback(__NR_io_uring_setup, ENOMEM, "ulimit -l");
#endif
}

}  // namespace
}  // namespace datapath::io_testing
