// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"
#include "dlpack.hpp"
#include "errors.hpp"
#include "operand.hpp"

namespace datapath::python {

namespace {

py::object export_capsule(py::handle object, bool on_cuda)
{
  py::dict arguments;
  // The legacy default stream: the producer orders its work before it, and the transfer starts after it.
  if (on_cuda) { arguments["stream"] = py::int_(1); }
  py::dict with_version       = arguments.attr("copy")();
  with_version["max_version"] = py::make_tuple(1, 0);
  auto const method           = object.attr("__dlpack__");
  try {
    return method(**with_version);
  } catch (py::error_already_set& error) {
    // Producers of before version 1.0 do not know the argument.
    if (!error.matches(PyExc_TypeError)) { throw; }
  }
  return method(**arguments);
}

bool is_compact(dlpack::Tensor const& tensor)
{
  if (tensor.strides == nullptr) { return true; }
  std::int64_t expected = 1;
  bool compact          = true;
  for (auto i = tensor.ndim; i-- > 0;) {
    if (tensor.shape[i] == 0) { return true; }
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) { compact = false; }
    expected *= tensor.shape[i];
  }
  return compact;
}

std::uint64_t byte_count(dlpack::Tensor const& tensor)
{
  std::uint64_t elements = 1;
  for (std::int32_t i = 0; i < tensor.ndim; ++i) {
    elements *= static_cast<std::uint64_t>(tensor.shape[i]);
  }
  return (elements * tensor.dtype.bits * tensor.dtype.lanes + 7) / 8;
}

/// The tensor in a capsule of either kind; the capsule keeps its ownership.
dlpack::Tensor const& open_capsule(py::handle capsule, bool& read_only)
{
  if (PyCapsule_IsValid(capsule.ptr(), dlpack::versioned_name) != 0) {
    auto const* const managed = static_cast<dlpack::VersionedManagedTensor const*>(
      PyCapsule_GetPointer(capsule.ptr(), dlpack::versioned_name));
    if (managed->version.major != 1) {
      PyErr_SetString(PyExc_BufferError, "the DLPack capsule has a major version other than 1");
      throw py::error_already_set{};
    }
    read_only = (managed->flags & dlpack::flag_read_only) != 0;
    return managed->tensor;
  }
  if (PyCapsule_IsValid(capsule.ptr(), dlpack::name) != 0) {
    return static_cast<dlpack::ManagedTensor const*>(
             PyCapsule_GetPointer(capsule.ptr(), dlpack::name))
      ->tensor;
  }
  raise_type_error("__dlpack__ gave " + type_name(capsule) + ", not an unused DLPack capsule");
}

}  // namespace

Operand dlpack_operand(py::handle object, Access access, Kept& kept)
{
  py::tuple const place = object.attr("__dlpack_device__")();
  auto const type       = py::int_(py::object{place[0]}).cast<int>();
  bool const on_cuda    = type == dlpack::cuda || type == dlpack::cuda_managed;
  if (!on_cuda && type != dlpack::cpu && type != dlpack::cuda_host) {
    raise_type_error("a buffer must be on the CPU or on CUDA; this one's DLPack device type is " +
                     std::to_string(type));
  }
  // The capsule is never marked as used: kept alive, it keeps the memory; let go, it frees it.
  auto capsule       = export_capsule(object, on_cuda);
  bool read_only     = false;
  auto const& tensor = open_capsule(capsule, read_only);
  kept.keep(capsule);
  if (access == Access::write && read_only) {
    raise_value_error("the buffer is read-only, and bytes are to be read into it");
  }
  if (!is_compact(tensor)) {
    raise_value_error("a buffer must be contiguous in row-major order; make a contiguous copy");
  }
  Operand operand;
  operand.nbytes  = byte_count(tensor);
  operand.address = reinterpret_cast<std::uintptr_t>(tensor.data) + tensor.byte_offset;
  if (on_cuda) {
    operand.kind        = MemoryKind::cuda;
    operand.from_dlpack = true;
    operand.ordinal     = py::int_(py::object{place[1]}).cast<int>();
  }
  return operand;
}

}  // namespace datapath::python
