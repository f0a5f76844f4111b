// SPDX-License-Identifier: Apache-2.0
/// @file
/// The file that `datapath tune` writes: "name = value" lines in the user's cache folder.
#pragma once

#include <functional>
#include <map>
#include <string>

namespace datapath {

using TunedEntries = std::map<std::string, std::string, std::less<>>;

/// $XDG_CACHE_HOME/datapath/tuned.conf, or under ~/.cache; empty when neither place is known.
[[nodiscard]] std::string tuned_file_path();

/// The file's entries, read at the first call for each path; no file is no entries. Throws
/// DP_ERR_INVALID naming file and line for a line, name or value that is wrong, at every call.
[[nodiscard]] TunedEntries const& tuned_file();

}  // namespace datapath
