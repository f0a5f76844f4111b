// SPDX-License-Identifier: Apache-2.0
#include "io/uring_setup.hpp"

#if DATAPATH_HAVE_LIBURING

#include "support/error.hpp"

#include <liburing.h>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <system_error>

namespace datapath {

namespace {

/// Best first: completions run when the thread asks for them (kernel 6.1), else without
/// interrupting it (5.19), else anyhow.
constexpr std::array<std::uint32_t, 4> flag_choices{
  IORING_SETUP_SUBMIT_ALL | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
  IORING_SETUP_SUBMIT_ALL | IORING_SETUP_COOP_TASKRUN,
  IORING_SETUP_SUBMIT_ALL,
  0};

/// A ring may get the addresses that another thread's ring just gave up. The kernel puts the one
/// after the other, and this says so to those who only see the program, such as ThreadSanitizer.
std::atomic<unsigned> rings_given_up{0};

int make_ring(io_uring& ring, std::uint32_t entries)
{
  int result = -EINVAL;
  for (auto const flags : flag_choices) {
    io_uring_params parameters{};
    parameters.flags = flags | IORING_SETUP_CLAMP;
    result           = ::io_uring_queue_init_params(entries, &ring, &parameters);
    if (result != -EINVAL) { break; }
  }
  (void)rings_given_up.load(std::memory_order_acquire);
  return result;
}

bool knows_operations(io_uring& ring)
{
  auto* const probe = ::io_uring_get_probe_ring(&ring);
  if (probe == nullptr) { return false; }
  bool const known = ::io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                     ::io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
  ::io_uring_free_probe(probe);
  return known;
}

/// A ring that was set up need not work: sandboxes may allow one call and forbid another.
int trial_read(io_uring& ring)
{
  int file = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  if (file < 0) { file = ::open("/dev/zero", O_RDONLY | O_CLOEXEC); }
  if (file < 0) { return -errno; }
  std::array<char, 16> bytes{};
  auto* const entry = ::io_uring_get_sqe(&ring);
  ::io_uring_prep_read(entry, file, bytes.data(), bytes.size(), 0);
  int result = 0;
  do {
    result = ::io_uring_submit_and_wait(&ring, 1);
  } while (result == -EINTR);
  io_uring_cqe* completion = nullptr;
  if (result >= 0) { result = ::io_uring_wait_cqe(&ring, &completion); }
  if (result == 0) {
    result = completion->res == static_cast<int>(bytes.size()) ? 0
             : completion->res < 0                             ? completion->res
                                                               : -EIO;
    ::io_uring_cqe_seen(&ring, completion);
  }
  ::close(file);
  return result;
}

}  // namespace

int set_up_ring(io_uring& ring, std::uint32_t entries, char const*& step)
{
  step             = "io_uring_setup";
  int const result = make_ring(ring, entries);
  if (result < 0) { return result; }
  constexpr std::uint32_t needed = IORING_FEAT_NODROP | IORING_FEAT_SUBMIT_STABLE;
  int error                      = 0;
  if ((ring.features & needed) != needed || !knows_operations(ring)) {
    step  = "io_uring_register (the kernel's rings are too old)";
    error = -EOPNOTSUPP;
  } else {
    step  = "a trial read";
    error = trial_read(ring);
  }
  // A forked child would share the ring's memory and with it its state.
  if (error == 0) {
    step  = "io_uring_ring_dontfork";
    error = ::io_uring_ring_dontfork(&ring);
  }
  if (error != 0) { tear_down_ring(ring); }
  return error;
}

void tear_down_ring(io_uring& ring) noexcept
{
  rings_given_up.fetch_add(1, std::memory_order_release);
  ::io_uring_queue_exit(&ring);
}

std::string explain_ring_error(int os_errno, char const* step)
{
  auto text = std::string{step} + ": " + std::generic_category().message(os_errno) + " (" +
              std::string{errno_name(os_errno)} + ")";
  if (os_errno == EPERM || os_errno == EACCES) {
    int disabled = 0;
    std::ifstream{"/proc/sys/kernel/io_uring_disabled"} >> disabled;
    if (disabled != 0) {
      return text +
             "; the administrator switched io_uring off: sysctl kernel.io_uring_disabled is " +
             std::to_string(disabled) +
             "; set it to 0, or with 1 join the group of kernel.io_uring_group";
    }
    return text +
           "; a seccomp filter or a security module forbids it, as containers do by default; run "
           "with "
           "a profile that allows io_uring_setup, io_uring_enter and io_uring_register";
  }
  if (os_errno == ENOSYS) {
    return text +
           "; the kernel was built without io_uring or a sandbox hides it; run outside of the "
           "sandbox, or "
           "with a seccomp profile that allows io_uring_setup, io_uring_enter and "
           "io_uring_register";
  }
  if (os_errno == ENOMEM) {
    return text + "; raise the limit of locked memory (ulimit -l) or lower io.depth and io.threads";
  }
  if (os_errno == EMFILE || os_errno == ENFILE) {
    return text + "; raise the limit of open files (ulimit -n)";
  }
  return text;
}

std::string ring_flag_names(std::uint32_t flags)
{
  constexpr std::array<std::pair<std::uint32_t, char const*>, 4> names{
    {{IORING_SETUP_SUBMIT_ALL, "SUBMIT_ALL"},
     {IORING_SETUP_SINGLE_ISSUER, "SINGLE_ISSUER"},
     {IORING_SETUP_DEFER_TASKRUN, "DEFER_TASKRUN"},
     {IORING_SETUP_COOP_TASKRUN, "COOP_TASKRUN"}}};
  std::string text;
  for (auto const& [flag, name] : names) {
    if ((flags & flag) != 0) { text.append(text.empty() ? "" : "|").append(name); }
  }
  return text;
}

}  // namespace datapath

#endif
