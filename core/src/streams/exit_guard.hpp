// SPDX-License-Identifier: Apache-2.0
/// @file
/// Stops progress threads before the process tears itself down: no device may be called after main.
#pragma once

#include <memory>

namespace datapath {

class Progress;

/// The thread behind `progress` is told to stop when the process exits.
void stop_at_exit(std::shared_ptr<Progress> const& progress);

}  // namespace datapath
