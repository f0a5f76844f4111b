// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"

#include "errors.hpp"

#include <chrono>
#include <cmath>
#include <limits>

namespace datapath::python {

namespace {

/// A whole number within bounds, which `bounds` names for the message.
long long to_integer(
  py::handle value, char const* what, long long least, long long most, char const* bounds)
{
  // Integers of numpy and torch count, floats do not: PyNumber_Index draws that line.
  auto const number = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!number) {
    PyErr_Clear();
    raise_type_error(std::string{what} + " must be an integer, not " + type_name(value));
  }
  int overflow       = 0;
  auto const integer = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0 || integer < least || integer > most) {
    raise_value_error(std::string{what} + " must be in " + bounds + ", not " +
                      py::str(number).cast<std::string>());
  }
  return integer;
}

}  // namespace

std::uint64_t to_unsigned(py::handle value, char const* what)
{
  return static_cast<std::uint64_t>(
    to_integer(value, what, 0, std::numeric_limits<long long>::max(), "0..2^63-1"));
}

int to_int(py::handle value, char const* what)
{
  using Limits = std::numeric_limits<int>;
  return static_cast<int>(to_integer(value, what, Limits::min(), Limits::max(), "-2^31..2^31-1"));
}

std::uint64_t to_bytes(py::handle value, char const* what)
{
  if (py::isinstance<py::str>(value)) { return client::parse_bytes(value.cast<std::string>()); }
  return to_unsigned(value, what);
}

std::uint64_t to_bytes_or_default(py::handle value, char const* what)
{ return value.is_none() ? 0 : to_bytes(value, what); }

int to_switch(py::handle value)
{ return value.is_none() ? 0 : (value.cast<bool>() ? 1 : -1); }

std::string to_path(py::handle path)
{
  PyObject* bytes = nullptr;
  if (PyUnicode_FSConverter(path.ptr(), &bytes) == 0) { throw py::error_already_set{}; }
  auto const owned = py::reinterpret_steal<py::bytes>(bytes);
  return std::string{std::string_view{owned}};
}

std::optional<std::uint64_t> to_nanoseconds(py::handle seconds, char const* what)
{
  if (seconds.is_none()) { return std::nullopt; }
  auto const value = PyFloat_AsDouble(seconds.ptr());
  if (value == -1.0 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    raise_type_error(std::string{what} + " must be a number of seconds or None, not " +
                     type_name(seconds));
  }
  if (std::isnan(value) || value < 0) {
    raise_value_error(std::string{what} + " must be >= 0 seconds");
  }
  // Longer than 200 years is for ever.
  if (value > 6e9) { return std::nullopt; }
  return static_cast<std::uint64_t>(std::llround(value * 1e9));
}

dp_stream to_stream(py::handle stream)
{
  if (PyLong_Check(stream.ptr()) == 0) {
    static PyObject* const name = PyUnicode_InternFromString("cuda_stream");
    if (auto const handle =
          py::reinterpret_steal<py::object>(PyObject_GetAttr(stream.ptr(), name))) {
      return to_unsigned(handle, "stream.cuda_stream");
    }
    if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) { throw py::error_already_set{}; }
    PyErr_Clear();
    if (py::hasattr(stream, "__cuda_stream__")) {
      return to_unsigned(py::tuple(stream.attr("__cuda_stream__")())[1],
                         "stream.__cuda_stream__()[1]");
    }
    if (PyIndex_Check(stream.ptr()) == 0) {
      raise_type_error(
        "a stream must be an integer handle, a torch.cuda.Stream or an object with "
        "__cuda_stream__, not " +
        type_name(stream));
    }
  }
  return to_unsigned(stream, "a stream");
}

py::object from_json(std::string const& text)
{ return py::module_::import("json").attr("loads")(py::str(text)); }

std::string type_name(py::handle object)
{ return py::str(py::type::handle_of(object).attr("__qualname__")).cast<std::string>(); }

std::uint64_t monotonic_now() noexcept
{
  auto const now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
    std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace datapath::python
