// SPDX-License-Identifier: Apache-2.0
/// @file
/// Python's Ticket: waits without the GIL and hears Ctrl-C.
#pragma once

#include "device.hpp"

#include <datapath/datapath.hpp>
#include <pybind11/pybind11.h>

#include <optional>
#include <vector>

namespace datapath::python {

/// One or several pieces of work that end together; bytes are summed, the first error is the ticket's.
struct PyTicket {
  std::vector<client::Ticket> parts;
  client::Device device;  ///< Whose streams `wait` means; empty for disk I/O alone.
};

void bind_ticket(py::module_& module);

}  // namespace datapath::python
