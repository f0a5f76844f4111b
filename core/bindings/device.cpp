// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include "arguments.hpp"
#include "buffer_method.hpp"
#include "errors.hpp"

namespace datapath::python {

using client::detail::check;

PyDeviceMemory::PyDeviceMemory(client::Device from, std::uint64_t size)
  : device{std::move(from)}, is_cuda{false}, ordinal{-1}, nbytes{size}, address{0}
{
  GilReleased const released;
  auto const info = device.info();
  is_cuda         = info.is_cuda != 0;
  ordinal         = is_cuda ? info.ordinal : -1;
  // No bytes need no memory, and the driver refuses to give none.
  if (nbytes != 0) { address = device.allocate(nbytes); }
}

PyDeviceMemory::~PyDeviceMemory()
{
  if (interpreter_ends()) { return; }
  GilReleased const released;
  if (address != 0) { dp_device_free(device.get(), address); }
  device = {};
}

client::Device open_device(std::string const& name)
{
  GilReleased const released;
  return client::Device{name};
}

client::Device cuda_device(int ordinal)
{ return open_device("cuda:" + std::to_string(ordinal)); }

client::Device device_of_stream(py::handle stream, client::Device const& otherwise)
{
  if (PyLong_Check(stream.ptr()) == 0 && py::hasattr(stream, "device_index")) {
    return cuda_device(stream.attr("device_index").cast<int>());
  }
  return otherwise;
}

namespace {

void null_capture(PyDevice const& device, py::handle stream, bool begin)
{ check(dp_null_capture(device.handle.get(), to_stream(stream), begin ? 1 : 0)); }

}  // namespace

void bind_device(py::module_& module)
{
  py::class_<PyDevice>(
    module,
    "Device",
    "A CUDA device, or the null device: host memory and worker threads with the streams, "
    "events\nand copies of one.\n\nParameters\n----------\nname : str\n"
    "    ``\"cuda\"``, ``\"cuda:1\"`` or ``\"null\"``.")
    .def(py::init([](std::string const& name) { return PyDevice{open_device(name)}; }),
         py::arg("name"))
    .def_property_readonly(
      "name", [](PyDevice const& self) { return std::string{self.handle.info().name}; })
    .def_property_readonly("is_cuda", [](PyDevice const& self) { return self.handle.is_cuda(); })
    .def_property_readonly("ordinal",
                           [](PyDevice const& self) { return self.handle.info().ordinal; })
    .def_property_readonly("numa_node",
                           [](PyDevice const& self) { return self.handle.info().numa_node; })
    .def(
      "create_stream",
      [](PyDevice const& self, int priority) {
        GilReleased const released;
        return self.handle.create_stream(priority);
      },
      py::arg("priority") = 0,
      "A new stream as an integer; lower numbers are more urgent, as in CUDA.")
    .def(
      "synchronize",
      [](PyDevice const& self, py::handle stream) {
        run_interruptibly(
          [device = self.handle, handle = to_stream(stream)] { device.synchronize(handle); });
      },
      py::arg("stream"),
      "Wait on the host for the work that is on the stream.")
    .def(
      "destroy_stream",
      [](PyDevice const& self, py::handle stream) {
        auto const handle = to_stream(stream);
        GilReleased const released;
        self.handle.destroy_stream(handle);
      },
      py::arg("stream"))
    .def(
      "is_capturing",
      [](PyDevice const& self, py::handle stream) {
        auto const handle = to_stream(stream);
        GilReleased const released;
        return self.handle.is_capturing(handle);
      },
      py::arg("stream"))
    .def(
      "allocate",
      [](PyDevice const& self, py::handle nbytes) {
        return std::make_unique<PyDeviceMemory>(self.handle, to_bytes(nbytes, "nbytes"));
      },
      py::arg("nbytes"),
      "Memory of the device, for tests and native callers; freed with its last reference.")
    .def("null_capture",
         &null_capture,
         py::arg("stream"),
         py::arg("begin"),
         "Begin or end a capture on the null device (tests).")
    .def(
      "null_set_copy_delay",
      [](PyDevice const& self, py::handle seconds) {
        check(dp_null_set_copy_delay(self.handle.get(),
                                     to_nanoseconds(seconds, "seconds").value_or(0)));
      },
      py::arg("seconds"),
      "Make each copy of the null device last at least this long (tests).")
    .def("__repr__", [](PyDevice const& self) {
      return "<Device " + std::string{self.handle.info().name} + ">";
    });

  py::class_<PyDeviceMemory> cls(
    module,
    "DeviceMemory",
    py::buffer_protocol(),
    "Memory of a device. That of the null device has the buffer protocol.");
  cls.def_readonly("nbytes", &PyDeviceMemory::nbytes)
    .def_readonly("address", &PyDeviceMemory::address)
    .def("__len__", [](PyDeviceMemory const& self) { return self.nbytes; })
    .def_buffer([](PyDeviceMemory& self) {
      if (self.is_cuda) {
        throw py::buffer_error{"memory of a CUDA device cannot be read by the CPU; transfer it"};
      }
      return py::buffer_info{reinterpret_cast<std::uint8_t*>(self.address),
                             static_cast<py::ssize_t>(self.nbytes)};
    });
  def_buffer_method(cls);
}

}  // namespace datapath::python
