// SPDX-License-Identifier: Apache-2.0
#include "errors.hpp"

#include <cerrno>

namespace datapath::python {

namespace {

py::object optional_text(std::string const& text)
{
  if (text.empty()) { return py::none(); }
  // Paths need not be valid UTF-8; os.fsdecode's rule keeps them.
  return py::reinterpret_steal<py::object>(
    PyUnicode_DecodeFSDefaultAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
}

py::object optional_offset(std::int64_t offset)
{
  if (offset < 0) { return py::none(); }
  return py::int_(offset);
}

py::object make(client::Error const& error)
{
  auto const errors  = py::module_::import("datapath_core.errors");
  py::str const text = py::reinterpret_steal<py::str>(PyUnicode_DecodeUTF8(
    error.what(), static_cast<Py_ssize_t>(std::string_view{error.what()}.size()), "replace"));
  switch (error.status()) {
    case DP_ERR_INVALID:
    case DP_ERR_CLOSED:
      return py::reinterpret_borrow<py::object>(PyExc_ValueError)(text);
    case DP_ERR_IO:
      return errors.attr("IoError")(
        error.os_errno(), text, optional_text(error.path()), optional_offset(error.offset()));
    case DP_ERR_NO_SPACE:
      return errors.attr("OutOfSpaceError")(text,
                                            optional_text(error.path()),
                                            optional_offset(error.offset()),
                                            error.os_errno() == 0 ? ENOSPC : error.os_errno());
    case DP_ERR_BUDGET:
      return errors.attr("BudgetError")(text);
    case DP_ERR_UNSUPPORTED:
    case DP_ERR_FORKED:
      return errors.attr("UnsupportedError")(text);
    case DP_ERR_CUDA:
      return errors.attr("CudaError")(text, error.cuda_result());
    default:
      return errors.attr("Error")(text);
  }
}

[[noreturn]] void raise_builtin(PyObject* type, std::string const& message)
{
  PyErr_SetString(type, message.c_str());
  throw py::error_already_set{};
}

}  // namespace

void raise(client::Error const& error)
{
  auto const exception = make(error);
  PyErr_SetObject(py::type::handle_of(exception).ptr(), exception.ptr());
}

void bind_errors(py::module_& /*module*/)
{
  py::register_local_exception_translator([](std::exception_ptr pending) {
    try {
      if (pending) { std::rethrow_exception(pending); }
    } catch (client::Error const& error) {
      raise(error);
    } catch (client::TimeoutError const& error) {
      PyErr_SetString(PyExc_TimeoutError, error.what());
    }
  });
}

void raise_type_error(std::string const& message)
{ raise_builtin(PyExc_TypeError, message); }
void raise_value_error(std::string const& message)
{ raise_builtin(PyExc_ValueError, message); }
void raise_timeout_error(std::string const& message)
{ raise_builtin(PyExc_TimeoutError, message); }

}  // namespace datapath::python
