// SPDX-License-Identifier: Apache-2.0
/// @file
/// Pinning memory that the caller has, in place. Registrations that overlap share pages.
///
/// A device registers a page once, so pages are kept in spans with a count of the registrations on
/// them. A span lives as long as one of those, and keeps the owner for whom it was made: pages
/// never stay registered over memory that was freed. Pages that another library registered are used
/// and never unregistered; that library must keep them registered while they are used.
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
  std::uint64_t bytes{0};  ///< Whole pages; those of other libraries do not count.
  std::uint64_t spans{0};
  std::uint64_t buffers{0};  ///< Registrations that hold spans.
};
[[nodiscard]] RegistrationStats registration_stats();

}  // namespace datapath
