// SPDX-License-Identifier: Apache-2.0
#include "buffer.hpp"

#include "arguments.hpp"
#include "buffer_method.hpp"
#include "errors.hpp"

#include <pybind11/stl.h>

namespace datapath::python {

PyBuffer::PyBuffer(client::Buffer buffer, client::Device on, bool is_read_only)
  : handle{std::move(buffer)}, device{std::move(on)}, info{handle.info()}, read_only{is_read_only}
{
  if (!device && info.device_ordinal >= 0) { device = cuda_device(info.device_ordinal); }
}

PyBuffer::~PyBuffer()
{
  let_go(handle);
  let_go(device);
}

namespace {

Operand host_operand(PyBuffer const& buffer, Access access)
{
  if (access == Access::write && buffer.read_only) {
    raise_value_error("the buffer is registered as read-only, and bytes are to be read into it");
  }
  Operand operand;
  operand.address = reinterpret_cast<std::uintptr_t>(buffer.info.pointer);
  operand.nbytes  = buffer.info.nbytes;
  return operand;
}

py::buffer_info buffer_info_of(PyBuffer& buffer)
{
  return py::buffer_info{static_cast<std::uint8_t*>(buffer.info.pointer),
                         static_cast<py::ssize_t>(buffer.info.nbytes),
                         buffer.read_only};
}

void record_use(PyBuffer const& buffer, py::handle stream)
{
  auto const device = device_of_stream(stream, buffer.device);
  auto const handle = to_stream(stream);
  if (!device) {
    raise_value_error(
      "the buffer has no device whose stream could be meant: " +
      std::string{buffer.info.reason == nullptr ? "plain memory" : buffer.info.reason});
  }
  GilReleased const released;
  buffer.handle.record_use(device, handle);
}

/// Whether a capsule of version 1 is asked for.
bool wants_versioned(py::handle max_version)
{
  return !max_version.is_none() &&
         py::tuple(py::reinterpret_borrow<py::object>(max_version))[0].cast<int>() >= 1;
}

[[noreturn]] void raise_buffer_error(char const* message)
{
  PyErr_SetString(PyExc_BufferError, message);
  throw py::error_already_set{};
}

void expect_no_copy(py::handle wanted_device, py::tuple const& device, py::handle copy)
{
  if (!wanted_device.is_none() &&
      !py::tuple(py::reinterpret_borrow<py::object>(wanted_device)).equal(device)) {
    raise_buffer_error("the buffer cannot be exported to another device; transfer it");
  }
  if (!copy.is_none() && copy.cast<bool>()) {
    raise_buffer_error("a buffer is exported without copying only");
  }
}

py::tuple const& host_device()
{
  static auto const* const device = new py::tuple{py::make_tuple(1, 0)};
  return *device;
}

py::capsule buffer_dlpack(PyBuffer const& self,
                          py::handle stream,
                          py::handle max_version,
                          py::handle dl_device,
                          py::handle copy)
{
  if (!stream.is_none()) { raise_value_error("memory of the CPU has no stream: it must be None"); }
  expect_no_copy(dl_device, host_device(), copy);
  auto const versioned = wants_versioned(max_version);
  if (self.read_only && !versioned) {
    raise_buffer_error(
      "the consumer speaks DLPack before 1.0, which cannot say that a buffer is read-only");
  }
  return export_host(self, versioned);
}

py::capsule view_dlpack(PyDeviceView const& self,
                        py::handle stream,
                        py::handle max_version,
                        py::handle dl_device,
                        py::handle copy)
{
  expect_no_copy(dl_device, py::make_tuple(2, self.buffer.info.device_ordinal), copy);
  auto const versioned = wants_versioned(max_version);
  if (self.buffer.read_only && !versioned) {
    raise_buffer_error(
      "the consumer speaks DLPack before 1.0, which cannot say that a buffer is read-only");
  }
  // None is the legacy default stream, -1 asks for no order at all.
  std::optional<dp_stream> consumer{1};
  if (!stream.is_none()) {
    auto const number = py::int_(py::reinterpret_borrow<py::object>(stream)).cast<std::int64_t>();
    if (number == 0) {
      raise_value_error("stream 0 is ambiguous in DLPack; use 1 (legacy) or 2 (per thread)");
    }
    consumer =
      number == -1 ? std::nullopt : std::optional<dp_stream>{static_cast<dp_stream>(number)};
  }
  return export_device(self.buffer, versioned, consumer);
}

py::dict cuda_array_interface(PyDeviceView const& self)
{
  py::dict interface;
  interface["shape"]   = py::make_tuple(self.buffer.info.nbytes);
  interface["typestr"] = "|u1";
  interface["data"]    = py::make_tuple(self.buffer.info.device_pointer, self.buffer.read_only);
  interface["version"] = 3;
  interface["stream"]  = py::none();
  return interface;
}

PyDeviceView device_view(PyBuffer const& self)
{
  if (self.info.device_ordinal < 0 || self.info.device_pointer == 0) {
    auto const errors = py::module_::import("datapath_core.errors");
    auto const why =
      std::string{self.info.reason == nullptr ? "its device is not CUDA" : self.info.reason};
    PyErr_SetString(errors.attr("UnsupportedError").ptr(),
                    ("no CUDA device can address the buffer: " + why).c_str());
    throw py::error_already_set{};
  }
  return PyDeviceView{self};
}

template <class Class>
void def_dlpack(py::class_<Class>& cls,
                py::capsule (*method)(Class const&, py::handle, py::handle, py::handle, py::handle))
{
  cls.def(
    "__dlpack__",
    method,
    py::kw_only(),
    py::arg("stream")      = py::none(),
    py::arg("max_version") = py::none(),
    py::arg("dl_device")   = py::none(),
    py::arg("copy")        = py::none(),
    "DLPack capsule of the bytes (uint8, one dimension), of version 1 where ``max_version`` allows.");
}

}  // namespace

std::optional<Operand> native_operand(py::handle object, Access access)
{
  if (is_a<PyBuffer>(object)) { return host_operand(object.cast<PyBuffer const&>(), access); }
  if (is_a<PyDeviceView>(object)) {
    return host_operand(object.cast<PyDeviceView const&>().buffer, access);
  }
  if (!is_a<PyDeviceMemory>(object)) { return std::nullopt; }
  auto const& memory = object.cast<PyDeviceMemory const&>();
  Operand operand;
  operand.address = memory.address;
  operand.nbytes  = memory.nbytes;
  operand.kind    = memory.is_cuda ? MemoryKind::cuda : MemoryKind::null_device;
  operand.ordinal = memory.ordinal;
  return operand;
}

void bind_buffer(py::module_& module)
{
  py::class_<PyBuffer> cls(
    module,
    "Buffer",
    py::buffer_protocol(),
    "A range of host memory that work may use: of a pool, or registered in place.\n\n"
    "It has the buffer protocol and DLPack, as CPU memory of type uint8, so ``numpy.asarray(buffer)`` and\n"
    "``torch.from_dlpack(buffer)`` are views. The memory goes back when the buffer and every view of it are\n"
    "gone and the recorded work has ended. Made by :meth:`PinnedPool.allocate` and :func:`register`.");
  cls
    .def_property_readonly(
      "nbytes",
      [](PyBuffer const& self) { return self.info.nbytes; },
      "Size in bytes, as asked for.")
    .def_property_readonly(
      "address",
      [](PyBuffer const& self) { return reinterpret_cast<std::uintptr_t>(self.info.pointer); },
      "Address of the first byte, for the CPU.")
    .def_property_readonly(
      "is_pinned",
      [](PyBuffer const& self) { return self.info.is_pinned != 0; },
      "Whether the memory is registered with a device, or locked where there is none.")
    .def_property_readonly(
      "is_registered",
      [](PyBuffer const& self) { return self.info.is_registered != 0; },
      "Whether the memory is the caller's (:func:`register`), not a pool's.")
    .def_property_readonly(
      "read_only",
      [](PyBuffer const& self) { return self.read_only; },
      "Whether the memory may not be written.")
    .def_property_readonly(
      "reason",
      [](PyBuffer const& self) -> std::optional<std::string> {
        if (self.info.reason == nullptr) { return std::nullopt; }
        return std::string{self.info.reason};
      },
      "Why the memory is not pinned; None if it is.")
    .def(
      "record_use",
      &record_use,
      py::arg("stream"),
      "Say that work now on ``stream`` uses the buffer: its memory is reused only after that work.\n\n"
      "Needed for work that this library does not see, such as a kernel of torch on a device view.\n\n"
      "Parameters\n----------\nstream : int or torch.cuda.Stream\n    The stream.\n\n"
      "Raises\n------\nValueError\n    If the buffer has no device.")
    .def(
      "device_view",
      &device_view,
      "The same bytes as CUDA memory, without a copy: the GPU reads and writes them over the bus.\n\n"
      "Returns\n-------\nDeviceView\n    It has DLPack and ``__cuda_array_interface__``.\n\n"
      "Raises\n------\nUnsupportedError\n    If no CUDA device can address the buffer.")
    .def(
      "__dlpack_device__", [](PyBuffer const&) { return host_device(); }, "``(kDLCPU, 0)``.")
    .def("__len__", [](PyBuffer const& self) { return self.info.nbytes; })
    .def("__repr__",
         [](PyBuffer const& self) {
           return "<Buffer of " + std::to_string(self.info.nbytes) + " bytes, " +
                  (self.info.is_pinned != 0 ? "pinned" : "not pinned") + ">";
         })
    .def_buffer(&buffer_info_of);
  def_dlpack(cls, &buffer_dlpack);
  def_buffer_method(cls);
}

void bind_device_view(py::module_& module)
{
  py::class_<PyDeviceView> cls(
    module,
    "DeviceView",
    "A buffer's bytes as CUDA memory: ``torch.from_dlpack(buffer.device_view())`` is a CUDA tensor.\n\n"
    "The buffer lives as long as its views. When a view that was imported by DLPack is let go, the work\n"
    "that is then on the importing stream is waited for before the memory is reused; for work on other\n"
    "streams call :meth:`Buffer.record_use`.");
  cls
    .def_property_readonly("nbytes",
                           [](PyDeviceView const& self) { return self.buffer.info.nbytes; })
    .def_property_readonly(
      "address",
      [](PyDeviceView const& self) { return self.buffer.info.device_pointer; },
      "Address of the first byte, for the device.")
    .def("__len__", [](PyDeviceView const& self) { return self.buffer.info.nbytes; })
    .def(
      "__dlpack_device__",
      [](PyDeviceView const& self) { return py::make_tuple(2, self.buffer.info.device_ordinal); },
      "``(kDLCUDA, ordinal)``.")
    .def_property_readonly("__cuda_array_interface__", &cuda_array_interface);
  def_dlpack(cls, &view_dlpack);
}

}  // namespace datapath::python
