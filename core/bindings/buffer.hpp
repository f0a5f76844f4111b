// SPDX-License-Identifier: Apache-2.0
/// @file
/// Python's Buffer (host memory that work may use) and DeviceView (the same bytes as a device sees them).
#pragma once

#include "device.hpp"
#include "operand.hpp"

#include <datapath/datapath.hpp>
#include <pybind11/pybind11.h>

#include <optional>
#include <string>

namespace datapath::python {

/// What a buffer is does not change while it lives, so it is asked once.
class PyBuffer {
 public:
  PyBuffer(client::Buffer buffer, client::Device device, bool read_only);
  PyBuffer(PyBuffer const&)            = default;
  PyBuffer& operator=(PyBuffer const&) = default;
  ~PyBuffer();

  client::Buffer handle;
  client::Device device;  ///< Empty without one.
  dp_buffer_info info;
  bool read_only;
};

/// An alias: device memory to whoever imports it, at no cost in memory.
struct PyDeviceView {
  PyBuffer buffer;
};

/// The memory of a Buffer, DeviceView or DeviceMemory; nothing for other objects.
[[nodiscard]] std::optional<Operand> native_operand(py::handle object, Access access);

/// DLPack capsules. `stream` is the consumer's, as the protocol defines it.
[[nodiscard]] py::capsule export_host(PyBuffer const& buffer, bool versioned);
[[nodiscard]] py::capsule export_device(PyBuffer const& buffer,
                                        bool versioned,
                                        std::optional<dp_stream> stream);

void bind_buffer(py::module_& module);
void bind_device_view(py::module_& module);
void bind_pool(py::module_& module);

}  // namespace datapath::python
