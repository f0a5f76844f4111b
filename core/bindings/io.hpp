// SPDX-License-Identifier: Apache-2.0
/// @file
/// Python's Engine, File, Volume and Extent.
#pragma once

#include "blocking.hpp"

#include <datapath/datapath.hpp>
#include <pybind11/pybind11.h>

namespace datapath::python {

struct PyEngine {
  client::Engine handle;
  explicit PyEngine(client::Engine engine) : handle{std::move(engine)} {}
  PyEngine(PyEngine const&)            = default;
  PyEngine& operator=(PyEngine const&) = default;
  ~PyEngine() { let_go(handle); }
};

struct PyFile {
  client::File handle;
  std::string path;
  PyFile(client::File file, std::string at) : handle{std::move(file)}, path{std::move(at)} {}
  PyFile(PyFile const&)            = default;
  PyFile& operator=(PyFile const&) = default;
  ~PyFile() { let_go(handle); }
};

struct PyVolume {
  client::Volume handle;
  explicit PyVolume(client::Volume volume) : handle{std::move(volume)} {}
  PyVolume(PyVolume const&)            = default;
  PyVolume& operator=(PyVolume const&) = default;
  ~PyVolume() { let_go(handle); }
};

struct PyExtent {
  client::Extent handle;
  std::uint64_t nbytes;
  explicit PyExtent(client::Extent extent) : handle{std::move(extent)}, nbytes{handle.size()} {}
  PyExtent(PyExtent const&)            = default;
  PyExtent& operator=(PyExtent const&) = default;
  ~PyExtent() { let_go(handle); }
};

void bind_io(py::module_& module);

}  // namespace datapath::python
