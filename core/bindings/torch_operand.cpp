// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"
#include "errors.hpp"
#include "operand.hpp"

#include <atomic>

namespace datapath::python {

namespace {

/// What is asked of torch again and again; filled once the program has imported torch, then kept.
struct Torch {
  py::object tensor_type;
  py::object strided;
  py::object current_stream;  ///< device index -> integer handle
};

/// nullptr until torch is imported: this module never imports it.
Torch const* torch()
{
  // Leaked on purpose: it must not be let go after the interpreter has ended.
  static std::atomic<Torch const*> cached{nullptr};
  if (auto const* const known = cached.load()) { return known; }
  PyObject* const modules = PyImport_GetModuleDict();
  PyObject* const module  = PyDict_GetItemString(modules, "torch");
  if (module == nullptr) { return nullptr; }
  // While torch is being imported it lacks some of these.
  auto const fetch = [](py::handle from, char const* name) {
    return py::getattr(from, name, py::none());
  };
  Torch found{fetch(module, "Tensor"), fetch(module, "strided"), py::none()};
  found.current_stream = fetch(fetch(module, "_C"), "_cuda_getCurrentRawStream");
  if (found.tensor_type.is_none() || found.strided.is_none()) { return nullptr; }
  auto const* const known = new Torch{std::move(found)};
  cached.store(known);
  return known;
}

/// Names of a tensor's attributes as Python objects, which a look-up by a C string would make each time.
struct Names {
  static PyObject* interned(char const* name)
  {
    auto* const made = PyUnicode_InternFromString(name);
    if (made == nullptr) { throw py::error_already_set{}; }
    return made;
  }
  PyObject* layout        = interned("layout");
  PyObject* is_contiguous = interned("is_contiguous");
  PyObject* is_conj       = interned("is_conj");
  PyObject* is_neg        = interned("is_neg");
  PyObject* data_ptr      = interned("data_ptr");
  PyObject* nbytes        = interned("nbytes");
  PyObject* is_cuda       = interned("is_cuda");
  PyObject* is_cpu        = interned("is_cpu");
  PyObject* get_device    = interned("get_device");
};

Names const& names()
{
  static Names const known;
  return known;
}

py::object expect_object(PyObject* made)
{
  if (made == nullptr) { throw py::error_already_set{}; }
  return py::reinterpret_steal<py::object>(made);
}

py::object get(py::handle object, PyObject* name)
{ return expect_object(PyObject_GetAttr(object.ptr(), name)); }

py::object call(py::handle object, PyObject* name)
{ return expect_object(PyObject_CallMethodNoArgs(object.ptr(), name)); }

bool is_true(py::object const& answer)
{ return answer.cast<bool>(); }

void expect_plain(py::handle tensor)
{
  if (get(tensor, names().layout).ptr() != torch()->strided.ptr()) {
    raise_value_error(
      "a sparse tensor has no single range of bytes; pass its indices() and values()");
  }
  if (!is_true(call(tensor, names().is_contiguous))) {
    raise_value_error(
      "a tensor must be contiguous; call .contiguous() for a copy, or pass the base tensor");
  }
  if (is_true(call(tensor, names().is_conj)) || is_true(call(tensor, names().is_neg))) {
    raise_value_error(
      "the tensor's bytes are not its values: its conjugate or negative bit is set; call "
      ".resolve_conj().resolve_neg() first");
  }
}

}  // namespace

bool is_torch_tensor(py::handle object)
{
  auto const* const known = torch();
  return known != nullptr && py::isinstance(object, known->tensor_type);
}

Operand torch_operand(py::handle tensor)
{
  expect_plain(tensor);
  Operand operand;
  operand.from_torch = true;
  operand.address    = to_unsigned(call(tensor, names().data_ptr), "data_ptr()");
  operand.nbytes     = to_unsigned(get(tensor, names().nbytes), "nbytes");
  if (operand.address == 0 && operand.nbytes != 0) {
    raise_value_error(
      "the tensor has no memory behind it (a meta or fake tensor, or its storage was freed)");
  }
  if (is_true(get(tensor, names().is_cuda))) {
    operand.kind    = MemoryKind::cuda;
    operand.ordinal = call(tensor, names().get_device).cast<int>();
  } else if (!is_true(get(tensor, names().is_cpu))) {
    raise_type_error("a tensor must be on the CPU or on CUDA, not on '" +
                     py::str(tensor.attr("device").attr("type")).cast<std::string>() + "'");
  }
  return operand;
}

dp_stream torch_current_stream(int ordinal)
{
  auto const& current = torch()->current_stream;
  if (!current.is_none()) {
    auto const number = py::int_(ordinal);
    auto const handle = expect_object(PyObject_CallOneArg(current.ptr(), number.ptr()));
    return to_unsigned(handle, "torch's current stream");
  }
  auto const module = py::module_::import("torch.cuda");
  return to_stream(module.attr("current_stream")(ordinal));
}

}  // namespace datapath::python
