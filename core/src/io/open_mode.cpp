// SPDX-License-Identifier: Apache-2.0
#include "io/open_mode.hpp"

#include "support/error.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace datapath {

namespace {

std::string_view open_remedy(int os_errno)
{
  switch (os_errno) {
    case ENOENT:
      return "check the path; mode 'w+' creates the file, but not its directory";
    case EACCES:
      return "check the permissions of the file and of its directories";
    case EMFILE:
      return "close files or raise the limit (ulimit -n); each file takes two descriptors";
    case EROFS:
      return "the file system is mounted read-only; open with mode 'r'";
    default:
      return {};
  }
}

int open_retrying(std::string const& path, int flags)
{
  constexpr mode_t owner_only = 0600;
  int fd                      = -1;
  do {
    fd = ::open(path.c_str(), flags, owner_only);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

}  // namespace

OpenMode parse_open_mode(std::string_view text)
{
  std::string plain;
  for (char const c : text) {
    if (c != 'b') { plain.push_back(c); }
  }
  if (plain == "r") { return {std::string{text}, O_RDONLY, true, false}; }
  if (plain == "r+") { return {std::string{text}, O_RDWR, true, true}; }
  if (plain == "w") { return {std::string{text}, O_WRONLY | O_CREAT | O_TRUNC, false, true}; }
  if (plain == "w+") { return {std::string{text}, O_RDWR | O_CREAT | O_TRUNC, true, true}; }
  fail(DP_ERR_INVALID, "mode '" + std::string{text} + "' is none of 'r', 'r+', 'w', 'w+'");
}

std::unique_ptr<Descriptors> open_descriptors(std::string const& path,
                                              OpenMode const& mode,
                                              DirectMode direct)
{
  expects(!path.empty(), "the file's path is empty");
  auto file  = std::make_unique<Descriptors>();
  file->path = path;
  // Non-blocking, since opening a pipe would wait for its other end.
  file->buffered = open_retrying(path, mode.flags | O_CLOEXEC | O_NONBLOCK);
  if (file->buffered < 0) { fail_system(errno, "opening", path, -1, open_remedy(errno)); }
  struct stat status{};
  if (::fstat(file->buffered, &status) != 0) { fail_system(errno, "fstat", path); }
  if (S_ISDIR(status.st_mode)) { fail_system(EISDIR, "opening", path); }
  if (!S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode)) {
    fail_system(ESPIPE, "opening", path, -1, "only regular files and block devices have offsets");
  }
  auto const access = mode.flags & O_ACCMODE;
  if (::fcntl(file->buffered, F_SETFL, access) != 0) { fail_system(errno, "fcntl", path); }
  open_direct(*file, access, direct);
  return file;
}

std::uint64_t size_of(Descriptors const& file)
{
  struct stat status{};
  if (::fstat(file.buffered, &status) != 0) { fail_system(errno, "fstat", file.path); }
  if (!S_ISBLK(status.st_mode)) { return static_cast<std::uint64_t>(status.st_size); }
  auto const end = ::lseek(file.buffered, 0, SEEK_END);
  if (end < 0) { fail_system(errno, "lseek", file.path); }
  return static_cast<std::uint64_t>(end);
}

}  // namespace datapath
