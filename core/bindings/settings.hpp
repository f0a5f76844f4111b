// SPDX-License-Identifier: Apache-2.0
/// @file
/// Settings, description and messages of the library, for Python.
#pragma once

#include <pybind11/pybind11.h>

namespace datapath::python {

namespace py = pybind11;

void bind_settings(py::module_& module);

}  // namespace datapath::python
