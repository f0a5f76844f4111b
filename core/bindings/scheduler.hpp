// SPDX-License-Identifier: Apache-2.0
/// @file
/// Python's Scheduler, and the schedulers that serve device buffers given to files and extents.
#pragma once

#include "operand.hpp"

#include <datapath/datapath.hpp>
#include <pybind11/pybind11.h>

#include <initializer_list>
#include <vector>

namespace datapath::python {

/// The scheduler of a CUDA device for those who name none; made at first use, again after a fork.
[[nodiscard]] client::Scheduler shared_scheduler(int ordinal);

/// The streams whose work may still use these: torch's current one for a tensor, the legacy default one
/// for other DLPack producers.
[[nodiscard]] std::vector<dp_stream> streams_before(std::initializer_list<Operand> operands);

void bind_scheduler(py::module_& module);

}  // namespace datapath::python
