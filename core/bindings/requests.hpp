// SPDX-License-Identifier: Apache-2.0
/// @file
/// Disk I/O on buffers: host memory goes to the engine, device memory through the device's scheduler.
#pragma once

#include "operand.hpp"
#include "ticket.hpp"

#include <datapath/datapath.hpp>
#include <pybind11/pybind11.h>

#include <functional>

namespace datapath::python {

/// One end of I/O on disk: a file or an extent.
struct DiskEnd {
  /// Reads or writes host memory.
  std::function<client::Ticket(std::span<dp_io_request const>, dp_owner)> on_host;
  /// The place at an offset, for transfers.
  std::function<dp_place(std::uint64_t)> place;
  /// Keeps what `place` refers to.
  py::object self;
};

/// I/O on one buffer. `access` is write where the memory is written, that is for reading from disk.
[[nodiscard]] PyTicket submit(DiskEnd const& end,
                              Access access,
                              py::handle buffer,
                              py::handle offset);

/// I/O on a list of (buffer, offset) pairs, as one ticket.
[[nodiscard]] PyTicket submit_batch(DiskEnd const& end, Access access, py::iterable pairs);

}  // namespace datapath::python
