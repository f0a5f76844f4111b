// SPDX-License-Identifier: Apache-2.0
/// @file
/// The schedulers of this process: described together, and stopped before the process tears itself down, since
/// no device may be called after main.
#pragma once

#include <memory>

namespace datapath {

class Progress;

/// From now on `progress` is described, and its thread is told to stop when the process exits.
void enlist(std::shared_ptr<Progress> const& progress);

}  // namespace datapath
