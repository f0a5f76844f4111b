// SPDX-License-Identifier: Apache-2.0
#include "memory/pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

namespace datapath {

namespace {

// From Linux 5.14; the C library's headers may be older than the kernel.
constexpr int advice_populate_read  = 22;
constexpr int advice_populate_write = 23;

bool kernel_populates() noexcept
{
  static bool const works = [] {
    auto* const page =
      ::mmap(nullptr, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) { return false; }
    auto const done = ::madvise(page, page_bytes(), advice_populate_write) == 0;
    ::munmap(page, page_bytes());
    return done;
  }();
  return works;
}

/// Without the advice there is no way to ask without the risk of a signal but whether it is mapped.
int touch(std::byte* pages, std::size_t nbytes, bool writable) noexcept
{
  for (std::size_t offset = 0; offset < nbytes; offset += page_bytes()) {
    unsigned char resident = 0;
    if (::mincore(pages + offset, page_bytes(), &resident) != 0) { return EFAULT; }
    std::atomic_ref byte{*reinterpret_cast<unsigned char*>(pages + offset)};
    if (writable) {
      byte.fetch_or(0, std::memory_order_relaxed);
    } else {
      (void)byte.load(std::memory_order_relaxed);
    }
  }
  return 0;
}

}  // namespace

std::uintptr_t page_bytes() noexcept
{
  static auto const bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

std::uintptr_t page_floor(std::uintptr_t address) noexcept
{ return address & ~(page_bytes() - 1); }

std::uintptr_t page_ceil(std::uintptr_t address) noexcept
{ return round_up(address, page_bytes()); }

int populate(void* pages, std::size_t nbytes, bool writable) noexcept
{
  if (!kernel_populates()) { return touch(static_cast<std::byte*>(pages), nbytes, writable); }
  auto const advice = writable ? advice_populate_write : advice_populate_read;
  while (::madvise(pages, nbytes, advice) != 0) {
    if (errno != EINTR && errno != EAGAIN) { return errno; }
  }
  return 0;
}

std::string hex_address(std::uintptr_t address)
{
  char text[2 + 2 * sizeof(address) + 1];
  (void)std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

}  // namespace datapath
