// SPDX-License-Identifier: Apache-2.0
/// @file
/// Modes of files as in Python's open, and opening by them.
#pragma once

#include "io/descriptors.hpp"

#include <memory>
#include <string>
#include <string_view>

namespace datapath {

struct OpenMode {
  std::string text;
  int flags{0};
  bool readable{false};
  bool writable{false};
};

/// "r", "r+", "w" or "w+", with or without "b". Throws DP_ERR_INVALID.
[[nodiscard]] OpenMode parse_open_mode(std::string_view text);

/// Opens a regular file or a block device; w and w+ create it with mode 0600 and truncate it.
[[nodiscard]] std::unique_ptr<Descriptors> open_descriptors(std::string const& path,
                                                            OpenMode const& mode,
                                                            DirectMode direct);

/// Bytes of a file or of a block device.
[[nodiscard]] std::uint64_t size_of(Descriptors const& file);

}  // namespace datapath
