// SPDX-License-Identifier: Apache-2.0
/// @file
/// Python arguments that are not buffers: sizes, offsets, paths, times, streams.
#pragma once

#include <datapath/datapath.hpp>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <string>

namespace datapath::python {

namespace py = pybind11;

/// As py::isinstance for a class of this module, whose type is looked up once.
template <class Class>
[[nodiscard]] bool is_a(py::handle object)
{
  static auto* const type = reinterpret_cast<PyTypeObject*>(py::type::of<Class>().release().ptr());
  return PyObject_TypeCheck(object.ptr(), type) != 0;
}

/// A whole number >= 0. TypeError for what is none, ValueError for a negative or too large one.
[[nodiscard]] std::uint64_t to_unsigned(py::handle value, char const* what);

/// A whole number that an int holds. TypeError for what is none, ValueError for one out of range.
[[nodiscard]] int to_int(py::handle value, char const* what);

/// As to_unsigned, but "8GiB" is accepted too.
[[nodiscard]] std::uint64_t to_bytes(py::handle value, char const* what);

/// As to_bytes; None is 0, which stands for the setting.
[[nodiscard]] std::uint64_t to_bytes_or_default(py::handle value, char const* what);

/// None is 0, which stands for the setting; True and False are 1 and -1.
[[nodiscard]] int to_switch(py::handle value);

/// A str, bytes or os.PathLike as the operating system spells it.
[[nodiscard]] std::string to_path(py::handle path);

/// Seconds to nanoseconds; None and infinity are nothing. ValueError for negative ones and NaN.
[[nodiscard]] std::optional<std::uint64_t> to_nanoseconds(py::handle seconds, char const* what);

/// An integer handle, an object with `cuda_stream` (torch.cuda.Stream) or with `__cuda_stream__`.
[[nodiscard]] dp_stream to_stream(py::handle stream);

/// JSON text as Python objects.
[[nodiscard]] py::object from_json(std::string const& text);

/// The name of an object's type, for messages.
[[nodiscard]] std::string type_name(py::handle object);

/// CLOCK_MONOTONIC in nanoseconds.
[[nodiscard]] std::uint64_t monotonic_now() noexcept;

}  // namespace datapath::python
