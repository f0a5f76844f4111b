// SPDX-License-Identifier: Apache-2.0
#include "io/spill_file.hpp"

#include "io/io_thread.hpp"
#include "support/error.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <utility>

namespace datapath {

namespace {

constexpr mode_t owner_only = 0600;

std::string unique_name()
{
  static std::atomic<std::uint64_t> counter{0};
  auto const time = std::chrono::steady_clock::now().time_since_epoch().count();
  return "datapath-" + std::to_string(::getpid()) + "-" + std::to_string(time) + "-" +
         std::to_string(counter.fetch_add(1)) + ".spill";
}

struct statvfs ask_file_system(std::string const& directory, int fd)
{
  struct statvfs answer{};
  if (::fstatvfs(fd, &answer) != 0) { fail_system(errno, "statvfs", directory); }
  return answer;
}

}  // namespace

SpillFile::SpillFile(std::string directory, bool keep, DirectMode direct)
  : directory_{std::move(directory)}, descriptors_{std::make_unique<Descriptors>()}
{
  struct stat status{};
  if (::stat(directory_.c_str(), &status) != 0) {
    fail_system(errno, "opening the directory of a volume", directory_, -1, "create it first");
  }
  if (!S_ISDIR(status.st_mode)) {
    fail_system(ENOTDIR, "opening the directory of a volume", directory_);
  }
  device_ = status.st_dev;

  int fd = keep ? -1 : open_unnamed();
  if (fd < 0) { fd = open_named(keep); }
  descriptors_->buffered = fd;
  descriptors_->path     = path_;
  struct statfs file_system{};
  if (::fstatfs(fd, &file_system) == 0) {
    in_memory_ = file_system.f_type == TMPFS_MAGIC || file_system.f_type == RAMFS_MAGIC;
  }
  try {
    open_direct(*descriptors_, O_RDWR, direct);
  } catch (...) {
    remove_name();
    throw;
  }
}

SpillFile::~SpillFile()
{ close(); }

int SpillFile::open_unnamed()
{
  // O_EXCL: nobody can give it a name later.
  int const fd = ::open(directory_.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, owner_only);
  if (fd >= 0) { path_ = directory_ + "/(unnamed)"; }
  return fd;
}

int SpillFile::open_named(bool keep)
{
  int fd = -1;
  do {
    path_ = directory_ + "/" + unique_name();
    fd    = ::open(path_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, owner_only);
  } while (fd < 0 && (errno == EEXIST || errno == EINTR));
  if (fd < 0) {
    fail_system(
      errno, "making a volume's file", path_, -1, "check the permissions of the directory");
  }
  has_name_ = true;
  if (!keep) { remove_name(); }
  return fd;
}

void SpillFile::remove_name() noexcept
{
  if (std::exchange(has_name_, false)) { ::unlink(path_.c_str()); }
}

int SpillFile::grow(std::uint64_t nbytes) noexcept
{
  FileSizeSignalGuard const no_signal;
  auto const from   = static_cast<off_t>(nbytes_);
  auto const length = static_cast<off_t>(nbytes - nbytes_);
  int error         = EOPNOTSUPP;
  if (preallocates_) {
    do {
      error = ::fallocate(descriptors_->buffered, 0, from, length) == 0 ? 0 : errno;
    } while (error == EINTR);
  }
  if (error == EOPNOTSUPP || error == ENOSYS) {
    preallocates_ = false;
    error = ::ftruncate(descriptors_->buffered, static_cast<off_t>(nbytes)) == 0 ? 0 : errno;
  }
  if (error == 0) {
    nbytes_ = nbytes;
  } else if (preallocates_) {
    // A step that fails halfway may leave blocks behind the old end.
    (void)!::ftruncate(descriptors_->buffered, from);
  }
  return error;
}

std::uint64_t SpillFile::available() const
{
  auto const answer = ask_file_system(directory_, descriptors_->buffered);
  return static_cast<std::uint64_t>(answer.f_bavail) * answer.f_frsize;
}

std::uint64_t SpillFile::file_system_bytes() const
{
  auto const answer = ask_file_system(directory_, descriptors_->buffered);
  return static_cast<std::uint64_t>(answer.f_blocks) * answer.f_frsize;
}

void SpillFile::close() noexcept
{
  remove_name();
  descriptors_.reset();
}

void SpillFile::abandon() noexcept
{
  remove_name();
  (void)descriptors_.release();
}

}  // namespace datapath
