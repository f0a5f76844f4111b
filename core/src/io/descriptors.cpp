// SPDX-License-Identifier: Apache-2.0
#include "io/descriptors.hpp"

#include "support/error.hpp"
#include "support/log.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <system_error>

namespace datapath {

namespace {

/// Answer to "which alignment": 0 in `offset` says that the file has no direct I/O.
struct Alignment {
  std::uint32_t memory;
  std::uint32_t offset;
};

constexpr std::uint32_t usual_alignment = 4096;

/// Logical block of the drive under a device number; partitions keep theirs with the whole drive.
std::uint32_t logical_block(dev_t device)
{
  auto const base = "/sys/dev/block/" + std::to_string(::major(device)) + ":" +
                    std::to_string(::minor(device)) + "/";
  for (char const* const place : {"queue/logical_block_size", "../queue/logical_block_size"}) {
    std::ifstream file{base + place};
    std::uint32_t nbytes = 0;
    if (file >> nbytes && nbytes >= 512 && (nbytes & (nbytes - 1)) == 0) { return nbytes; }
  }
  return usual_alignment;
}

Alignment ask_alignment(int fd, struct stat const& status)
{
#ifdef STATX_DIOALIGN
  struct statx extended{};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &extended) == 0 &&
      (extended.stx_mask & STATX_DIOALIGN) != 0) {
    return {extended.stx_dio_mem_align, extended.stx_dio_offset_align};
  }
#else
  (void)fd;
#endif
  auto const block = logical_block(S_ISBLK(status.st_mode) ? status.st_rdev : status.st_dev);
  return {block, block};
}

/// The unit in which the page cache keeps and writes back a file.
std::uint32_t cache_unit(struct stat const& status)
{
  auto const page = static_cast<std::uint32_t>(::sysconf(_SC_PAGESIZE));
  // Network file systems report their transfer size here, which is no unit of the cache.
  constexpr blksize_t largest_block = 65536;
  if (status.st_blksize <= largest_block && (status.st_blksize & (status.st_blksize - 1)) == 0) {
    return std::max(page, static_cast<std::uint32_t>(status.st_blksize));
  }
  return page;
}

int reopen(Descriptors const& file, int flags)
{
  // By the descriptor and not by the path: the file may be renamed or have no name at all.
  auto const link = "/proc/self/fd/" + std::to_string(file.buffered);
  return ::open(link.c_str(), flags | O_DIRECT | O_CLOEXEC);
}

void refuse(Descriptors& file, DirectMode mode, std::string reason)
{
  if (mode == DirectMode::required) {
    fail(DP_ERR_UNSUPPORTED,
         "direct I/O was required for '" + file.path + "', but " + reason +
           "; use another file system or the setting io.direct=auto");
  }
  file.direct_reason = std::move(reason);
}

}  // namespace

Descriptors::~Descriptors()
{
  for (int const fd : {direct, buffered}) {
    if (fd >= 0) { ::close(fd); }
  }
}

void Descriptors::refuse_direct() noexcept
{
  if (direct_refused.exchange(true, std::memory_order_relaxed)) { return; }
  try {
    log(LogLevel::warning,
        "io.file",
        "'" + path +
          "' opens with O_DIRECT but refuses aligned requests (EINVAL): using the page cache");
  } catch (...) {
    // Out of memory for a message: the state is in describe() all the same.
  }
}

void open_direct(Descriptors& file, int flags, DirectMode mode)
{
  if (mode == DirectMode::never) {
    file.direct_reason = "it is switched off (io.direct=never)";
    return;
  }
  struct stat status{};
  if (::fstat(file.buffered, &status) != 0) { fail_system(errno, "fstat", file.path); }
  auto const alignment = ask_alignment(file.buffered, status);
  if (alignment.offset == 0) {
    return refuse(file, mode, "the file system says that this file has no direct I/O");
  }
  int const fd = reopen(file, flags);
  if (fd < 0) {
    return refuse(file,
                  mode,
                  "opening it with O_DIRECT failed: " + std::generic_category().message(errno) +
                    " (" + std::string{errno_name(errno)} + ")");
  }
  file.direct           = fd;
  file.direct_required  = mode == DirectMode::required;
  file.memory_alignment = std::max(alignment.memory, 1U);
  file.read_alignment   = alignment.offset;
  file.write_alignment  = std::max(alignment.offset, cache_unit(status));
  // Read-ahead beside direct writes would fill the cache with bytes that are about to be stale.
  ::posix_fadvise(file.buffered, 0, 0, POSIX_FADV_RANDOM);
}

}  // namespace datapath
