// SPDX-License-Identifier: Apache-2.0
/// @file
/// The ranges of host memory that a device object has registered, by address.
#pragma once

#include "streams/device.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <shared_mutex>

namespace datapath {

/// Ranges are exact, as the driver's are: two of them may lie in one page.
class HostTable {
 public:
  struct Entry {
    HostRange range;                  ///< As inserted; zero bytes: nothing there.
    std::uint64_t device_address{0};  ///< Of the pointer that was asked for.
  };

  /// False if some of the bytes are in the table already.
  [[nodiscard]] bool insert(void const* pointer, std::size_t nbytes, std::uint64_t device_address);
  /// Takes a pointer that was inserted; anything else is ignored.
  void remove(void const* pointer) noexcept;
  [[nodiscard]] Entry find(void const* pointer) const noexcept;
  [[nodiscard]] std::size_t size() const noexcept;

 private:
  struct Registered {
    std::uintptr_t end;
    std::uint64_t device_address;
  };
  mutable std::shared_mutex mutex_;
  std::map<std::uintptr_t, Registered> ranges_;  ///< By start.
};

}  // namespace datapath
