// SPDX-License-Identifier: Apache-2.0
/// @file
/// Python's Device and DeviceMemory: streams and plain device memory, for tests and native callers.
#pragma once

#include "blocking.hpp"

#include <datapath/datapath.hpp>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>

namespace datapath::python {

namespace py = pybind11;

struct PyDevice {
  client::Device handle;

  explicit PyDevice(client::Device device) : handle{std::move(device)} {}
  PyDevice(PyDevice const&)            = default;
  PyDevice& operator=(PyDevice const&) = default;
  ~PyDevice() { let_go(handle); }
};

/// Memory by the device's own allocator; freed with its last reference.
class PyDeviceMemory {
 public:
  PyDeviceMemory(client::Device device, std::uint64_t nbytes);
  PyDeviceMemory(PyDeviceMemory const&)            = delete;
  PyDeviceMemory& operator=(PyDeviceMemory const&) = delete;
  ~PyDeviceMemory();

  client::Device device;
  bool is_cuda;
  int ordinal;
  std::uint64_t nbytes;
  std::uint64_t address;
};

/// Opens a device without the GIL.
[[nodiscard]] client::Device open_device(std::string const& name);
[[nodiscard]] client::Device cuda_device(int ordinal);

/// The device of a stream object that names it (torch.cuda.Stream); else the one given.
[[nodiscard]] client::Device device_of_stream(py::handle stream, client::Device const& otherwise);

void bind_device(py::module_& module);

}  // namespace datapath::python
