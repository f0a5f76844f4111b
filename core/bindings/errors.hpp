// SPDX-License-Identifier: Apache-2.0
/// @file
/// From errors of the library to the exceptions of datapath_core.errors.
#pragma once

#include <datapath/datapath.hpp>
#include <pybind11/pybind11.h>

#include <string>

namespace datapath::python {

namespace py = pybind11;

/// Raises the Python exception for an error of the library: see docs/core/errors.
void raise(client::Error const& error);

/// Every client::Error that leaves a bound function becomes its Python exception.
void bind_errors(py::module_& module);

[[noreturn]] void raise_type_error(std::string const& message);
[[noreturn]] void raise_value_error(std::string const& message);
[[noreturn]] void raise_timeout_error(std::string const& message);

}  // namespace datapath::python
