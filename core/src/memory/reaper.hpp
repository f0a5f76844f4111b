// SPDX-License-Identifier: Apache-2.0
/// @file
/// Gives memory back when the work on it has ended and nobody calls any more: a thread that polls,
/// and that is there only while something waits.
#pragma once

#include <functional>

namespace datapath {

/// Calls `done` on the reaper's thread, with no lock held, again and again until it says true. It
/// must not throw. Nothing is called any more once the process exits.
void reap(std::function<bool()> done);

}  // namespace datapath
