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

void expect_plain(py::handle tensor)
{
  if (tensor.attr("layout").ptr() != torch()->strided.ptr()) {
    raise_value_error(
      "a sparse tensor has no single range of bytes; pass its indices() and values()");
  }
  if (!tensor.attr("is_contiguous")().cast<bool>()) {
    raise_value_error(
      "a tensor must be contiguous; call .contiguous() for a copy, or pass the base tensor");
  }
  if (tensor.attr("is_conj")().cast<bool>() || tensor.attr("is_neg")().cast<bool>()) {
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
  operand.address    = to_unsigned(tensor.attr("data_ptr")(), "data_ptr()");
  operand.nbytes     = to_unsigned(tensor.attr("nbytes"), "nbytes");
  if (operand.address == 0 && operand.nbytes != 0) {
    raise_value_error(
      "the tensor has no memory behind it (a meta or fake tensor, or its storage was freed)");
  }
  if (tensor.attr("is_cpu").cast<bool>()) { return operand; }
  auto const device = tensor.attr("device");
  auto const type   = device.attr("type").cast<std::string>();
  if (type != "cuda") {
    raise_type_error("a tensor must be on the CPU or on CUDA, not on '" + type + "'");
  }
  operand.kind    = MemoryKind::cuda;
  operand.ordinal = device.attr("index").cast<int>();
  return operand;
}

dp_stream torch_current_stream(int ordinal)
{
  auto const& current = torch()->current_stream;
  if (!current.is_none()) { return to_unsigned(current(ordinal), "torch's current stream"); }
  auto const module = py::module_::import("torch.cuda");
  return to_stream(module.attr("current_stream")(ordinal));
}

}  // namespace datapath::python
