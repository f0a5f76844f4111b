// SPDX-License-Identifier: Apache-2.0
#include "memory/backing.hpp"

#include "memory/pages.hpp"
#include "memory/parallel.hpp"
#include "streams/numa.hpp"
#include "support/error.hpp"
#include "support/settings.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace datapath {

namespace {

constexpr std::uint64_t touch_bytes = std::uint64_t{32} << 20U;
// More do not touch faster: zeroing is bound by memory, and the kernel's locks are contended.
constexpr unsigned most_threads       = 8;
constexpr int memory_policy_preferred = 1;  // MPOL_PREFERRED

void* pointer_to(std::uint64_t address)
{ return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)); }

[[noreturn]] void fail_backing(int os_errno, Piece const& piece, char const* call)
{
  auto info    = system_error(os_errno, call);
  info.status  = os_errno == ENOMEM || os_errno == EAGAIN ? DP_ERR_BUDGET : DP_ERR_IO;
  info.message = "no memory for " + std::to_string(piece.nbytes()) +
                 " bytes more: " + info.message +
                 "; free memory, lower the budget or raise the limit of this process";
  throw Error{std::move(info)};
}

/// Preferred, not bound: a full node must not bring the out-of-memory killer.
void place_on_node(Piece const& piece, BackingOptions const& options)
{
  if (options.numa_node < 0) { return; }
  constexpr std::size_t most_nodes = 1024;
  constexpr std::size_t word_bits  = 8 * sizeof(unsigned long);
  std::array<unsigned long, most_nodes / word_bits> mask{};
  auto const node = static_cast<std::size_t>(options.numa_node);
  if (node >= most_nodes) { fail(DP_ERR_INVALID, "there is no NUMA node " + std::to_string(node)); }
  mask[node / word_bits] = 1UL << (node % word_bits);
  auto const result      = ::syscall(SYS_mbind,
                                     piece.start,
                                     piece.nbytes(),
                                     memory_policy_preferred,
                                     mask.data(),
                                     most_nodes + 1,
                                     0U);
  if (result == 0 || !options.numa_required) { return; }
  auto const os_errno = errno;
  auto info           = system_error(os_errno, "mbind");
  info.status         = os_errno == EINVAL ? DP_ERR_INVALID : DP_ERR_UNSUPPORTED;
  info.message =
    "memory cannot be placed on NUMA node " + std::to_string(node) + ": " + info.message;
  throw Error{std::move(info)};
}

void prepare(Piece const& piece, BackingOptions const& options)
{
  auto* const start = pointer_to(piece.start);
  if (::mprotect(start, piece.nbytes(), PROT_READ | PROT_WRITE) != 0) {
    fail_backing(errno, piece, "mprotect");
  }
  // Advice: a kernel without huge pages refuses, and the memory is good all the same.
  (void)::madvise(start, piece.nbytes(), options.huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  // A process that writes after a fork could leave the device with pages that it no longer has.
  // Memory that no device uses stays readable in children, such as workers that load data.
  if (options.device != nullptr && ::madvise(start, piece.nbytes(), MADV_DONTFORK) != 0) {
    fail_backing(errno, piece, "madvise");
  }
  place_on_node(piece, options);
}

void pin(Piece& piece, BackingOptions const& options)
{
  auto* const start = pointer_to(piece.start);
  if (options.device != nullptr) {
    try {
      piece.device_address = options.device->register_host(start, piece.nbytes(), false);
      piece.pinned         = true;
    } catch (Error const& error) {
      if (options.device_required) { throw; }
      piece.reason = error.info().message;
    }
  } else if (options.lock) {
    if (::mlock(start, piece.nbytes()) == 0) {
      piece.pinned = true;
    } else {
      piece.reason =
        system_error(errno, "mlock", {}, -1, "raise the limit of locked memory (ulimit -l)")
          .message;
    }
  }
}

void touch(Piece const& piece, BackingOptions const& options)
{
  auto const parts = (piece.nbytes() + touch_bytes - 1) / touch_bytes;
  in_parallel(parts,
              memory_threads(piece.nbytes(), options.numa_node),
              options.numa_node,
              [&](std::size_t part) {
                auto const start  = piece.start + part * touch_bytes;
                auto const nbytes = std::min(touch_bytes, piece.end - start);
                auto const failed = populate(pointer_to(start), nbytes, true);
                if (failed != 0) { fail_backing(failed, piece, "populating pages"); }
              });
}

}  // namespace

std::byte* reserve_addresses(std::uint64_t nbytes)
{
  auto* const start =
    ::mmap(nullptr, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) {
    auto info = system_error(errno, "reserving " + std::to_string(nbytes) + " bytes of addresses");
    info.status = DP_ERR_BUDGET;
    info.message += "; lower the budget or raise the limit of addresses (ulimit -v)";
    throw Error{std::move(info)};
  }
  return static_cast<std::byte*>(start);
}

void release_addresses(std::byte* start, std::uint64_t nbytes) noexcept
{ (void)::munmap(start, nbytes); }

void back(Piece& piece, BackingOptions const& options)
{
  try {
    prepare(piece, options);
    touch(piece, options);
    pin(piece, options);
  } catch (...) {
    unback(piece, options.device);
    throw;
  }
}

void unback(Piece const& piece, Device* device) noexcept
{
  auto* const start = pointer_to(piece.start);
  if (piece.pinned && device != nullptr) { device->unregister_host(start); }
  // A fresh mapping forgets the pages, the lock, the policy and the advice at once.
  (void)::mmap(start,
               piece.nbytes(),
               PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
               -1,
               0);
}

unsigned memory_threads(std::uint64_t nbytes, int numa_node)
{
  auto wanted = static_cast<unsigned>(setting_integer("memory.touch_threads"));
  if (wanted == 0) {
    cpu_set_t allowed;
    auto const of_node = cpus_of_node(numa_node);
    if (of_node) {
      wanted = static_cast<unsigned>(CPU_COUNT(&*of_node));
    } else if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
      wanted = static_cast<unsigned>(CPU_COUNT(&allowed));
    }
    wanted = std::clamp(wanted, 1U, most_threads);
  }
  auto const worth = std::max<std::uint64_t>(nbytes / touch_bytes, 1);
  return static_cast<unsigned>(std::min<std::uint64_t>(wanted, worth));
}

}  // namespace datapath
