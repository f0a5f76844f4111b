// SPDX-License-Identifier: Apache-2.0
#include "operand.hpp"

#include "arguments.hpp"
#include "buffer.hpp"
#include "errors.hpp"

namespace datapath::python {

namespace {

/// Whether a struct-module format names Python objects. Field names stand between colons.
bool holds_objects(char const* format)
{
  bool in_name = false;
  for (; format != nullptr && *format != '\0'; ++format) {
    if (*format == ':') {
      in_name = !in_name;
    } else if (!in_name && *format == 'O') {
      return true;
    }
  }
  return false;
}

/// Why PyObject_GetBuffer refused, as a ValueError with its error as the cause.
[[noreturn]] void reject_buffer(py::handle object, Access access)
{
  py::error_already_set cause;
  std::string text;
  Py_buffer probe{};
  if (access == Access::write &&
      PyObject_GetBuffer(object.ptr(), &probe, PyBUF_C_CONTIGUOUS) == 0) {
    PyBuffer_Release(&probe);
    text = "the buffer is read-only (" + type_name(object) +
           "), and its bytes would be written; numpy.array makes a writable copy, and "
           "register(..., read_only=True) pins one as it is";
  } else {
    PyErr_Clear();
    text = "a buffer must be contiguous in row-major order: " + type_name(object) +
           " says: " + py::str(cause.value()).cast<std::string>() +
           "; numpy.ascontiguousarray makes a contiguous copy";
  }
  py::raise_from(cause, PyExc_ValueError, text.c_str());
  throw py::error_already_set{};
}

[[noreturn]] void reject_objects()
{
  raise_type_error(
    "a buffer of Python objects holds addresses, which mean nothing elsewhere; convert it to "
    "a numeric dtype");
}

}  // namespace

Operand buffer_protocol_operand(py::handle object, Access access, Kept& kept)
{
  int const flags       = PyBUF_C_CONTIGUOUS | (access == Access::write ? PyBUF_WRITABLE : 0);
  Py_buffer* const view = kept.new_view();
  if (PyObject_GetBuffer(object.ptr(), view, flags | PyBUF_FORMAT) != 0) {
    // Some dtypes (datetime64) have no format, yet plain bytes.
    PyErr_Clear();
    if (PyObject_GetBuffer(object.ptr(), view, flags) != 0) {
      kept.drop_view();
      reject_buffer(object, access);
    }
    if (py::hasattr(object, "dtype") &&
        py::bool_(py::getattr(object.attr("dtype"), "hasobject", py::bool_(false)))) {
      reject_objects();
    }
  }
  if (holds_objects(view->format)) { reject_objects(); }
  Operand operand;
  operand.address = reinterpret_cast<std::uintptr_t>(view->buf);
  operand.nbytes  = static_cast<std::uint64_t>(view->len);
  return operand;
}

Operand to_operand(py::handle object, Access access, Kept& kept)
{
  kept.keep(py::reinterpret_borrow<py::object>(object));
  if (auto operand = native_operand(object, access)) { return *operand; }
  if (is_torch_tensor(object)) { return torch_operand(object); }
  if (PyObject_CheckBuffer(object.ptr()) != 0) {
    return buffer_protocol_operand(object, access, kept);
  }
  if (py::hasattr(object, "__dlpack__")) { return dlpack_operand(object, access, kept); }
  raise_type_error(
    "a buffer must have the buffer protocol or DLPack, as numpy arrays, bytearrays and torch "
    "tensors have; " +
    type_name(object) + " has neither");
}

}  // namespace datapath::python
