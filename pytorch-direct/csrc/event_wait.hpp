// SPDX-License-Identifier: Apache-2.0
/// @file
/// The host's wait for one event.
#pragma once

#include <cstdint>

namespace pytorch_direct {

/// Return when the work before the event (a `cudaEvent_t`) has ended. Allowed while a stream of
/// this thread records a graph: the event is of work that was launched, so it comes to pass.
void wait_for_event(int device, std::uintptr_t event);

}  // namespace pytorch_direct
