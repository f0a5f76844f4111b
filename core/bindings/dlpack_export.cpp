// SPDX-License-Identifier: Apache-2.0
#include "buffer.hpp"
#include "dlpack.hpp"

#include <datapath/python/gil.hpp>

namespace datapath::python {

namespace {

/// What an importer holds: its deleter may run on any thread, with the GIL or without.
template <class Managed>
struct Exported {
  Managed managed{};
  std::int64_t shape{0};
  std::int64_t stride{1};
  client::Buffer buffer;
  client::Device device;
  std::optional<dp_stream> stream;
};

template <class Managed>
void let_go_of(Managed* managed) noexcept
{
  auto* const exported = static_cast<Exported<Managed>*>(managed->context);
  if (interpreter_ends()) { return; }
  bool const has_gil = PyGILState_Check() != 0;
  auto* const state  = has_gil ? PyEval_SaveThread() : nullptr;
  // The importer says nothing about work that it left on its stream, so that work is waited for. Where even
  // that fails, the memory must not be reused.
  if (exported->stream &&
      dp_buffer_record_use(exported->buffer.get(), exported->device.get(), *exported->stream) !=
        DP_OK) {
    static_cast<void>(exported->buffer.release());
  }
  delete exported;
  if (has_gil) { take_gil(state); }
}

template <class Managed>
py::capsule export_as(PyBuffer const& buffer,
                      dlpack::Device where,
                      std::uint64_t address,
                      std::optional<dp_stream> stream,
                      char const* name)
{
  auto exported          = std::make_unique<Exported<Managed>>();
  exported->shape        = static_cast<std::int64_t>(buffer.info.nbytes);
  exported->buffer       = buffer.handle;
  exported->device       = buffer.device;
  exported->stream       = stream;
  auto& managed          = exported->managed;
  managed.context        = exported.get();
  managed.deleter        = let_go_of<Managed>;
  managed.tensor.data    = reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
  managed.tensor.device  = where;
  managed.tensor.ndim    = 1;
  managed.tensor.dtype   = dlpack::DataType{1, 8, 1};
  managed.tensor.shape   = &exported->shape;
  managed.tensor.strides = &exported->stride;
  if constexpr (std::is_same_v<Managed, dlpack::VersionedManagedTensor>) {
    managed.version = dlpack::Version{1, 0};
    managed.flags   = buffer.read_only ? dlpack::flag_read_only : 0;
  }
  PyObject* const capsule = PyCapsule_New(&managed, name, [](PyObject* unused) {
    // An importer renames the capsule and takes over; one that was never imported is let go here.
    auto const* const current = PyCapsule_GetName(unused);
    if (current == nullptr || std::string_view{current}.starts_with("used_")) { return; }
    auto* const tensor = static_cast<Managed*>(PyCapsule_GetPointer(unused, current));
    tensor->deleter(tensor);
  });
  if (capsule == nullptr) { throw py::error_already_set{}; }
  static_cast<void>(exported.release());
  return py::reinterpret_steal<py::capsule>(capsule);
}

py::capsule export_tensor(PyBuffer const& buffer,
                          dlpack::Device where,
                          std::uint64_t address,
                          bool versioned,
                          std::optional<dp_stream> stream)
{
  if (versioned) {
    return export_as<dlpack::VersionedManagedTensor>(
      buffer, where, address, stream, dlpack::versioned_name);
  }
  return export_as<dlpack::ManagedTensor>(buffer, where, address, stream, dlpack::name);
}

}  // namespace

py::capsule export_host(PyBuffer const& buffer, bool versioned)
{
  return export_tensor(buffer,
                       dlpack::Device{dlpack::cpu, 0},
                       reinterpret_cast<std::uintptr_t>(buffer.info.pointer),
                       versioned,
                       std::nullopt);
}

py::capsule export_device(PyBuffer const& buffer, bool versioned, std::optional<dp_stream> stream)
{
  return export_tensor(buffer,
                       dlpack::Device{dlpack::cuda, buffer.info.device_ordinal},
                       buffer.info.device_pointer,
                       versioned,
                       stream);
}

}  // namespace datapath::python
