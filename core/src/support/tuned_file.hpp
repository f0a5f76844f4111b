// SPDX-License-Identifier: Apache-2.0
/// @file
/// The file that `datapath tune` writes: "name = value" lines in the user's cache folder.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

namespace datapath {

using TunedEntries = std::map<std::string, std::string, std::less<>>;

/// $XDG_CACHE_HOME/datapath/tuned.conf, or under ~/.cache; empty when neither place is known.
[[nodiscard]] std::string tuned_file_path();

/// The file's entries, read again when the file has changed; no file is no entries. Throws
/// DP_ERR_INVALID naming file and line for a line, name or value that is wrong, at every call.
[[nodiscard]] std::shared_ptr<TunedEntries const> tuned_file();

}  // namespace datapath
