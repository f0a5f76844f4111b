// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the library needs of a device: streams, events, copies, host registration. Two of them
/// exist: CUDA's driver, and the null device, which does the same with host memory and worker
/// threads.
#pragma once

#include "support/ref.hpp"

#include <datapath/datapath.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace datapath {

using EventHandle = std::uint64_t;

/// Host memory that is registered as one range; a single copy must not leave it. Zero bytes: not
/// registered.
struct HostRange {
  std::uint64_t start{0};  ///< Host address.
  std::uint64_t nbytes{0};
};

enum class CopyKind : std::uint8_t { host_to_device, device_to_host, device_to_device };

/// One object a device and process; every method may be called from any thread, needs no current
/// context of the caller's, and throws Error{DP_ERR_CUDA} with the call, its arguments and the
/// driver's text.
class Device : public RefCounted {
 public:
  /// "cuda", "cuda:N" or "null". The same name gives the same live object.
  [[nodiscard]] static Ref<Device> open(std::string_view name);
  /// As "cuda" where that can be used, else nothing, with the reason.
  [[nodiscard]] static Ref<Device> open_default(std::string* reason = nullptr);
  /// Names of the devices that are open in this process.
  [[nodiscard]] static std::vector<std::string> open_names();

  [[nodiscard]] virtual bool is_cuda() const noexcept          = 0;
  [[nodiscard]] virtual int ordinal() const noexcept           = 0;
  [[nodiscard]] virtual int numa_node() const noexcept         = 0;
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  /// The calling thread is the library's own, and most of its calls will be for this device.
  virtual void adopt_thread() noexcept {}

  // ---- streams
  /// Higher priorities come first, as everywhere here; what the device does not have is clamped.
  [[nodiscard]] virtual dp_stream create_stream(int priority) = 0;
  /// Returns at once; work in flight goes on. The default streams 0, 1 and 2 stay.
  virtual void destroy_stream(dp_stream stream) noexcept       = 0;
  virtual void synchronize(dp_stream stream)                   = 0;
  [[nodiscard]] virtual bool is_capturing(dp_stream stream)    = 0;
  virtual void wait_event(dp_stream stream, EventHandle event) = 0;
  virtual void write_value32(dp_stream stream,
                             std::uint64_t device_address,
                             std::uint32_t value)              = 0;
  /// The stream goes on once the word equals `value`.
  virtual void wait_value32(dp_stream stream,
                            std::uint64_t device_address,
                            std::uint32_t value) = 0;

  // ---- events, pooled, without timing; one says nothing before its first record
  [[nodiscard]] virtual EventHandle acquire_event()        = 0;
  virtual void release_event(EventHandle event) noexcept   = 0;
  virtual void record(EventHandle event, dp_stream stream) = 0;
  [[nodiscard]] virtual bool query(EventHandle event)      = 0;
  virtual void synchronize_event(EventHandle event)        = 0;

  // ---- bytes
  virtual void copy_async(std::uint64_t destination,
                          std::uint64_t source,
                          std::size_t nbytes,
                          CopyKind kind,
                          dp_stream stream)                        = 0;
  virtual void fill_async(std::uint64_t destination,
                          std::uint8_t byte,
                          std::size_t nbytes,
                          dp_stream stream)                        = 0;
  [[nodiscard]] virtual std::uint64_t allocate(std::size_t nbytes) = 0;
  virtual void free(std::uint64_t address)                         = 0;

  // ---- host memory
  /// Registers exactly these bytes, which no registered range may overlap; gives the device's
  /// address of `pointer`. Throws if the driver refuses.
  virtual std::uint64_t register_host(void* pointer, std::size_t nbytes, bool read_only) = 0;
  virtual void unregister_host(void* pointer) noexcept                                   = 0;
  /// The device's address of host memory that some library registered, or 0.
  [[nodiscard]] virtual std::uint64_t mapped_address(void const* pointer) noexcept = 0;
  /// The registered range around a host pointer, whichever library registered it.
  [[nodiscard]] virtual HostRange registered_range(void const* pointer) noexcept = 0;

 protected:
  /// Leaves the table of open devices before it dies, so that `open` never gives a dead one.
  void last_reference_gone() const noexcept override;
};

}  // namespace datapath
