// SPDX-License-Identifier: Apache-2.0
/// @file
/// The module datapath_core._core: native classes under the Python ones.
#include "buffer.hpp"
#include "errors.hpp"
#include "graveyard.hpp"
#include "io.hpp"
#include "scheduler.hpp"
#include "settings.hpp"
#include "ticket.hpp"

#include <datapath/datapath.hpp>
#include <pybind11/pybind11.h>

// The module guards its own state, so a free-threaded interpreter need not take its lock for it.
PYBIND11_MODULE(_core, module, pybind11::mod_gil_not_used())
{
  using namespace datapath::python;
  pybind11::options options;
  options.disable_function_signatures();

  datapath::client::detail::require_abi();
  module.attr("__version__") = dp_version();
  module.attr("abi_version") = dp_abi_version();
  bind_errors(module);
  bind_settings(module);
  bind_device(module);
  bind_buffer(module);
  bind_device_view(module);
  bind_pool(module);
  bind_ticket(module);
  bind_io(module);
  bind_scheduler(module);
  pybind11::module_::import("atexit").attr("register")(pybind11::cpp_function(&close_graveyard));
}
