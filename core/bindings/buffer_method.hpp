// SPDX-License-Identifier: Apache-2.0
/// @file
/// `__buffer__` for classes with the buffer protocol, where Python does not make it by itself.
#pragma once

#include <pybind11/pybind11.h>

namespace datapath::python {

namespace py = pybind11;

/// Python 3.12 and later derive the method from the protocol; 3.11 does not, and type checkers ask for it.
template <class Class>
void def_buffer_method([[maybe_unused]] Class& cls)
{
#if PY_VERSION_HEX < 0x030C0000
  cls.def(
    "__buffer__",
    [](py::handle self, int /*flags*/) {
      return py::memoryview{py::reinterpret_borrow<py::object>(self)};
    },
    py::arg("flags"),
    py::pos_only());
#endif
}

}  // namespace datapath::python
