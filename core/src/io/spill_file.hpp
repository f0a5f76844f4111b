// SPDX-License-Identifier: Apache-2.0
/// @file
/// A volume's file in one directory: without a name where possible, growing in preallocated steps.
#pragma once

#include "io/descriptors.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace datapath {

class SpillFile {
 public:
  /// Makes a file with mode 0600. `keep`: it has a name until `close`; else it never has one, or
  /// loses it at once, so that nothing is left behind by a crash. Throws DP_ERR_IO.
  SpillFile(std::string directory, bool keep, DirectMode direct);
  ~SpillFile();
  SpillFile(SpillFile const&)            = delete;
  SpillFile& operator=(SpillFile const&) = delete;

  /// Makes the file `nbytes` long, with its blocks allocated where the file system can. 0, or the
  /// errno.
  [[nodiscard]] int grow(std::uint64_t nbytes) noexcept;
  /// Bytes that the file system has for us; throws DP_ERR_IO.
  [[nodiscard]] std::uint64_t available() const;
  [[nodiscard]] std::uint64_t file_system_bytes() const;
  /// The name goes if there is one; the descriptors close. At most once.
  void close() noexcept;
  /// As `close`, but requests that never ended may still use the descriptors.
  void abandon() noexcept;

  [[nodiscard]] bool is_open() const noexcept { return descriptors_ != nullptr; }
  [[nodiscard]] Descriptors& descriptors() const noexcept { return *descriptors_; }
  [[nodiscard]] std::string const& directory() const noexcept { return directory_; }
  [[nodiscard]] std::string const& path() const noexcept { return path_; }
  [[nodiscard]] bool has_name() const noexcept { return has_name_; }
  /// Its bytes lie in memory (tmpfs, ramfs).
  [[nodiscard]] bool in_memory() const noexcept { return in_memory_; }
  [[nodiscard]] bool preallocates() const noexcept { return preallocates_; }
  [[nodiscard]] std::uint64_t device() const noexcept { return device_; }

 private:
  [[nodiscard]] int open_unnamed();
  [[nodiscard]] int open_named(bool keep);
  void remove_name() noexcept;

  std::string directory_;
  std::string path_;
  bool has_name_{false};
  bool in_memory_{false};
  bool preallocates_{true};
  std::uint64_t device_{0};
  std::uint64_t nbytes_{0};
  std::unique_ptr<Descriptors> descriptors_;
};

}  // namespace datapath
