// SPDX-License-Identifier: Apache-2.0
#include "settings.hpp"

#include "arguments.hpp"

#include <datapath/datapath.hpp>
#include <datapath/python/gil.hpp>
#include <pybind11/stl.h>

namespace datapath::python {

void bind_settings(py::module_& module)
{
  module.def(
    "get_setting",
    [](std::string const& name) {
      auto setting = client::get_setting(name);
      return py::make_tuple(std::move(setting.value), std::move(setting.source));
    },
    py::arg("name"));
  module.def("set_setting", &client::set_setting, py::arg("name"), py::arg("value"));
  module.def("reset_setting", &client::reset_setting, py::arg("name"));
  module.def("settings_json", &client::settings_json);
  module.def(
    "describe_json", &client::describe, py::arg("probe_devices"), py::call_guard<GilReleased>());
  module.def(
    "parse_bytes",
    [](py::handle size) { return to_bytes(size, "a size"); },
    py::arg("size"),
    "A number of bytes from an int or from text such as ``\"8GiB\"``, ``\"1.5 MB\"`` or ``\"4096\"``.\n\n"
    "Every unit is binary: KB and KiB are both 1024.\n\n"
    "Parameters\n----------\nsize : int or str\n    The size.\n\n"
    "Returns\n-------\nint\n    Bytes.\n\n"
    "Raises\n------\nValueError\n    For text that is no size, or a negative number.");
  module.def("take_log_message", [] {
    std::optional<std::tuple<int, std::string, std::string>> result;
    if (auto message = client::take_log_message()) {
      result.emplace(message->level, std::move(message->source), std::move(message->text));
    }
    return result;
  });
}

}  // namespace datapath::python
