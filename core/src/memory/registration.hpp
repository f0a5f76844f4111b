// SPDX-License-Identifier: Apache-2.0
/// @file
/// Pinning memory that the caller has, in place. Registrations that overlap share it.
///
/// Exactly the caller's bytes are registered, not the pages around them: a neighbour on the last
/// page would begin inside the range, and the driver refuses copies that run past a range's end.
/// Memory that nobody had registered becomes one range, so that a single copy can move it.
///
/// A device registers a byte once, so ranges are kept in spans with a count of the registrations on
/// them. A span lives as long as one of those, and keeps the owner for whom it was made: memory
/// that was freed never stays registered. What another library registered is used and never
/// unregistered; that library must keep it registered while it is used.
#pragma once

#include "memory/buffer.hpp"
#include "support/owner.hpp"

#include <memory>

namespace datapath {

/// dp_register. `device` empty: CUDA's default device, else plain memory, with the reason. The
/// owner is released once in every case, also when this throws. Work that was recorded on the
/// buffer is followed by a thread of the library after the last reference is gone, so nothing stays
/// pinned for lack of a further call.
[[nodiscard]] Ref<Buffer> register_memory(void* pointer,
                                          std::uint64_t nbytes,
                                          bool read_only,
                                          bool required,
                                          Ref<Device> device,
                                          dp_owner owner);

/// What is registered in this process now.
struct RegistrationStats {
  std::uint64_t bytes{0};  ///< Those that other libraries registered do not count.
  std::uint64_t spans{0};
  std::uint64_t buffers{0};  ///< Registrations that hold spans.
};
[[nodiscard]] RegistrationStats registration_stats();

}  // namespace datapath
