// SPDX-License-Identifier: Apache-2.0
/// @file
/// A range of host memory that work may use: of a pool, or the caller's own and registered in
/// place.
#pragma once

#include "streams/device.hpp"
#include "support/ref.hpp"

#include <cstdint>
#include <string>

namespace datapath {

/// The last reference starts the way back: the memory is reused, or the owner released, after every
/// recorded use.
class Buffer : public RefCounted {
 public:
  [[nodiscard]] virtual void* data() const noexcept           = 0;
  [[nodiscard]] virtual std::uint64_t nbytes() const noexcept = 0;
  /// 0 without a device, and where the device does not see the buffer as one range.
  [[nodiscard]] virtual std::uint64_t device_address() const noexcept = 0;
  [[nodiscard]] virtual Device* device() const noexcept            = 0;  ///< nullptr without one.
  [[nodiscard]] virtual bool is_pinned() const noexcept            = 0;
  [[nodiscard]] virtual bool is_registered() const noexcept        = 0;
  [[nodiscard]] virtual std::string const& reason() const noexcept = 0;
  /// Throws DP_ERR_UNSUPPORTED for a stream that captures: its work is not in flight yet.
  virtual void record_use(Device& device, dp_stream stream) = 0;
};

}  // namespace datapath
