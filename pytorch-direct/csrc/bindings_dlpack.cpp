// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host memory that a GPU can read, told to torch as memory of that GPU: a DLPack capsule of version 0,
/// whose layout is part of the DLPack specification (dlpack.h, DLManagedTensor).
#include "bindings.hpp"

#include <memory>

namespace py = pybind11;

namespace pytorch_direct {
namespace {

constexpr std::int32_t kDlCuda         = 2;
constexpr std::uint8_t kDlUnsignedCode = 1;

struct DlTensor {
  void* data;
  std::int32_t device_type;
  std::int32_t device_id;
  std::int32_t dimensions;
  std::uint8_t type_code;
  std::uint8_t type_bits;
  std::uint16_t type_lanes;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

struct DlManagedTensor {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManagedTensor*);
};

struct Export {
  DlManagedTensor managed;
  std::int64_t shape;
  py::object owner;
};

void drop(DlManagedTensor* managed)
{
  // After the interpreter has ended, the owner ended with it.
  if (Py_IsInitialized() == 0) { return; }
  py::gil_scoped_acquire const held;
  delete static_cast<Export*>(managed->context);
}

/// A capsule that no one has taken still owns its tensor.
void drop_capsule(PyObject* capsule)
{
  if (PyCapsule_IsValid(capsule, "dltensor") == 0) { return; }
  auto* const managed = static_cast<DlManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
  managed->deleter(managed);
}

py::object device_bytes(Address address, std::int64_t bytes, std::int32_t device, py::object owner)
{
  auto exported     = std::make_unique<Export>();
  exported->shape   = bytes;
  exported->owner   = std::move(owner);
  exported->managed = {
    {bytes_at(address), kDlCuda, device, 1, kDlUnsignedCode, 8, 1, &exported->shape, nullptr, 0},
    exported.get(),
    &drop};
  auto* const capsule = PyCapsule_New(&exported->managed, "dltensor", &drop_capsule);
  if (capsule == nullptr) { throw py::error_already_set(); }
  (void)exported.release();
  return py::reinterpret_steal<py::object>(capsule);
}

}  // namespace

void bind_dlpack(py::module_& module)
{
  module.def(
    "device_bytes",
    &device_bytes,
    "A DLPack capsule of uint8 on a CUDA device; holds `owner` until its last user is gone.");
}

}  // namespace pytorch_direct
