// SPDX-License-Identifier: Apache-2.0
/// @file
/// Scheduler.transfer: from Python's ends and options to dp_transfer.
#pragma once

#include "blocking.hpp"
#include "ticket.hpp"

#include <datapath/datapath.hpp>
#include <pybind11/pybind11.h>

namespace datapath::python {

struct PyScheduler {
  client::Scheduler handle;
  client::Device device;
  bool is_cuda;
  int ordinal;

  PyScheduler(client::Scheduler scheduler, client::Device on, bool on_cuda, int number)
    : handle{std::move(scheduler)}, device{std::move(on)}, is_cuda{on_cuda}, ordinal{number}
  {}
  PyScheduler(PyScheduler const&)            = default;
  PyScheduler& operator=(PyScheduler const&) = default;
  ~PyScheduler()
  {
    let_go(handle);
    let_go(device);
  }
};

[[nodiscard]] PyTicket transfer(PyScheduler const& scheduler,
                                py::handle destination,
                                py::handle source,
                                py::handle nbytes,
                                py::handle priority,
                                py::handle deadline,
                                py::handle after,
                                py::handle streams);

}  // namespace datapath::python
