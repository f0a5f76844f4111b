// SPDX-License-Identifier: Apache-2.0
#include "io.hpp"

#include "arguments.hpp"
#include "errors.hpp"
#include "requests.hpp"

#include <pybind11/stl.h>

namespace datapath::python {

namespace {

std::uint32_t to_count(py::handle value, char const* what)
{
  if (value.is_none()) { return 0; }
  auto const count = to_unsigned(value, what);
  if (count == 0 || count > 32768) {
    raise_value_error(std::string{what} + " must be in 1..32768");
  }
  return static_cast<std::uint32_t>(count);
}

PyEngine make_engine(std::optional<std::string> const& backend,
                     py::handle depth,
                     py::handle threads,
                     py::handle direct,
                     std::optional<std::string> const& faults,
                     py::handle max_inflight_bytes)
{
  dp_engine_options options{};
  options.backend            = backend ? backend->c_str() : nullptr;
  options.faults             = faults ? faults->c_str() : nullptr;
  options.depth              = to_count(depth, "depth");
  options.threads            = to_count(threads, "threads");
  options.direct             = to_switch(direct);
  options.max_inflight_bytes = to_bytes_or_default(max_inflight_bytes, "max_inflight_bytes");
  GilReleased const released;
  return PyEngine{client::Engine{options}};
}

PyFile open_file(PyEngine const& engine, py::handle path, std::string const& mode)
{
  auto name = to_path(path);
  GilReleased const released;
  return PyFile{engine.handle.open(name, mode), std::move(name)};
}

dp_place place_of(client::File const& file, std::uint64_t offset)
{ return client::file_place(file, offset); }

dp_place place_of(client::Extent const& extent, std::uint64_t offset)
{ return client::extent_place(extent, offset); }

/// `access` is what is done to the buffer: one that is written is read from the disk.
template <class Class>
DiskEnd end_of(py::handle self, Access access)
{
  auto const& disk = self.cast<Class const&>().handle;
  return DiskEnd{[&disk, access](std::span<dp_io_request const> requests, dp_owner owner) {
                   return access == Access::write ? disk.read(requests, owner)
                                                  : disk.write(requests, owner);
                 },
                 [&disk](std::uint64_t offset) { return place_of(disk, offset); },
                 py::reinterpret_borrow<py::object>(self)};
}

constexpr char const* read_doc =
  "Read from ``offset`` until the buffer is full.\n\n"
  "Parameters\n----------\nbuffer : buffer\n"
  "    Writable and contiguous, with the buffer protocol or DLPack, on CPU or CUDA. It must not be used\n"
  "    before the ticket has ended.\n"
  "offset : int\n    First byte, at any alignment.\n\n"
  "Returns\n-------\nTicket\n"
  "    Its result is the bytes read. Past the end of a file they are fewer, and the buffer's rest is left\n"
  "    alone; an extent has no bytes past its end.\n\n"
  "Raises\n------\nValueError\n"
  "    For a negative offset, a buffer that is not contiguous or is read-only, or a closed object.\n"
  "TypeError\n    For an object that is no buffer.";

constexpr char const* write_doc =
  "Write the buffer's bytes at ``offset``.\n\n"
  "Parameters\n----------\nbuffer : buffer\n"
  "    Contiguous, with the buffer protocol or DLPack, on CPU or CUDA. It must not be changed before the\n"
  "    ticket has ended.\n"
  "offset : int\n    First byte, at any alignment.\n\n"
  "Returns\n-------\nTicket\n    Its result is the bytes written, all of them.\n\n"
  "Raises\n------\nValueError\n"
  "    For a negative offset, a buffer that is not contiguous, or a closed object.\n"
  "TypeError\n    For an object that is no buffer.";

constexpr char const* batch_doc =
  "As the call for one buffer, for a list of ``(buffer, offset)`` pairs.\n\n"
  "Returns\n-------\nTicket\n    One for the batch: the bytes moved in all, or the first error.";

/// read, write and their batch forms.
template <class Class>
void def_requests(py::class_<Class>& cls)
{
  cls
    .def(
      "read",
      [](py::handle self, py::handle buffer, py::handle offset) {
        return submit(end_of<Class>(self, Access::write), Access::write, buffer, offset);
      },
      py::arg("buffer"),
      py::arg("offset") = 0,
      read_doc)
    .def(
      "write",
      [](py::handle self, py::handle buffer, py::handle offset) {
        return submit(end_of<Class>(self, Access::read), Access::read, buffer, offset);
      },
      py::arg("buffer"),
      py::arg("offset") = 0,
      write_doc)
    .def(
      "read_batch",
      [](py::handle self, py::iterable pairs) {
        return submit_batch(end_of<Class>(self, Access::write), Access::write, std::move(pairs));
      },
      py::arg("pairs"),
      batch_doc)
    .def(
      "write_batch",
      [](py::handle self, py::iterable pairs) {
        return submit_batch(end_of<Class>(self, Access::read), Access::read, std::move(pairs));
      },
      py::arg("pairs"),
      batch_doc);
}

void bind_engine(py::module_& module)
{
  py::class_<PyEngine>(module, "Engine")
    .def(py::init(&make_engine),
         py::arg("backend"),
         py::arg("depth"),
         py::arg("threads"),
         py::arg("direct"),
         py::arg("faults"),
         py::arg("max_inflight_bytes"))
    .def("open",
         &open_file,
         py::arg("path"),
         py::arg("mode") = "r",
         "Open a file.\n\n"
         "Parameters\n----------\npath : str or os.PathLike\n    The file.\n"
         "mode : {\"r\", \"r+\", \"w\", \"w+\"}\n"
         "    As in Python's open, binary; ``w`` and ``w+`` create with mode 0600 and truncate.\n\n"
         "Returns\n-------\nFile\n    It keeps the engine.\n\n"
         "Raises\n------\nIoError\n    With errno and filename, if the file cannot be opened.\n"
         "ValueError\n    For another mode, or if the engine is closed.")
    .def(
      "describe_json",
      [](PyEngine const& self) { return self.handle.describe(); },
      py::call_guard<GilReleased>())
    .def(
      "close", &close<PyEngine>, "End what is in flight, then refuse more. May be called again.");
}

void bind_file(py::module_& module)
{
  py::class_<PyFile> cls(
    module, "File", "An open file: made by :meth:`Engine.open`; a context manager that closes it.");
  def_requests(cls);
  cls
    .def_property_readonly(
      "path",
      [](PyFile const& self) {
        return py::reinterpret_steal<py::object>(PyUnicode_DecodeFSDefaultAndSize(
          self.path.data(), static_cast<Py_ssize_t>(self.path.size())));
      },
      "The path that it was opened by.")
    .def_property_readonly(
      "size",
      [](PyFile const& self) {
        GilReleased const released;
        return self.handle.size();
      },
      "Size in bytes, asked from the file system at each use.")
    .def(
      "truncate",
      [](PyFile const& self, py::handle nbytes) {
        run_interruptibly(
          [file = self.handle, size = to_bytes(nbytes, "nbytes")] { file.truncate(size); });
      },
      py::arg("nbytes"),
      "Cut the file to a size, or let it grow to it with zeroes.")
    .def(
      "sync",
      [](PyFile const& self) { run_interruptibly([file = self.handle] { file.sync(); }); },
      "Wait until every write that was submitted before is on the drive (fdatasync).")
    .def("close",
         &close<PyFile>,
         "End what is in flight on the file and close it. May be called again.")
    .def("__enter__", [](py::object self) { return self; })
    .def("__exit__", [](py::object const& self, py::args const&) { self.attr("close")(); })
    .def("__repr__", [](PyFile const& self) { return "<File '" + self.path + "'>"; });
}

PyVolume make_volume(std::vector<py::object> const& directories,
                     py::handle capacity,
                     bool unlink,
                     PyEngine const* engine,
                     py::handle segment_bytes,
                     py::handle stripe_bytes,
                     py::handle reserve_bytes)
{
  std::vector<std::string> names;
  for (auto const& directory : directories) { names.push_back(to_path(directory)); }
  dp_volume_options options{};
  options.capacity      = to_bytes(capacity, "capacity");
  options.keep_files    = unlink ? 0 : 1;
  options.segment_bytes = to_bytes_or_default(segment_bytes, "segment_bytes");
  options.stripe_bytes  = to_bytes_or_default(stripe_bytes, "stripe_bytes");
  options.reserve_bytes = to_bytes_or_default(reserve_bytes, "reserve_bytes");
  auto const held       = engine == nullptr ? client::Engine{} : engine->handle;
  options.engine        = held.get();
  GilReleased const released;
  return PyVolume{client::Volume{names, options}};
}

PyExtent allocate_extent(PyVolume const& volume, py::handle nbytes)
{
  auto const size = to_bytes(nbytes, "nbytes");
  drain_graveyard();
  GilReleased const released;
  return PyExtent{volume.handle.allocate(size)};
}

py::dict volume_stats(PyVolume const& volume)
{
  // Waits while another thread makes the volume's files grow.
  auto const known = [&] {
    GilReleased const released;
    return volume.handle.stats();
  }();
  py::dict result;
  result["drives"]        = known.drives;
  result["capacity"]      = known.capacity;
  result["backed"]        = known.backed;
  result["allocated"]     = known.allocated;
  result["requested"]     = known.requested;
  result["extents"]       = known.extents;
  result["bytes_read"]    = known.bytes_read;
  result["bytes_written"] = known.bytes_written;
  return result;
}

void bind_volume(py::module_& module)
{
  py::class_<PyVolume>(module, "Volume")
    .def(py::init(&make_volume),
         py::arg("directories"),
         py::arg("capacity"),
         py::arg("unlink"),
         py::arg("engine").none(true),
         py::arg("segment_bytes"),
         py::arg("stripe_bytes"),
         py::arg("reserve_bytes"))
    .def("allocate",
         &allocate_extent,
         py::arg("nbytes"),
         "A range of exactly ``nbytes`` in the volume's files.\n\n"
         "Parameters\n----------\nnbytes : int or str\n    Size; 0 is legal.\n\n"
         "Returns\n-------\nExtent\n    Its content is undefined until it is written.\n\n"
         "Raises\n------\nOutOfSpaceError\n    If the volume or its drives are full.\n"
         "ValueError\n    If the volume is closed.")
    .def(
      "stats",
      &volume_stats,
      "Returns\n-------\ndict\n"
      "    Bytes: ``capacity``, ``backed`` by files, ``allocated`` by live extents with their grain,\n"
      "    ``requested`` by them, ``bytes_read``, ``bytes_written``; counts ``drives`` and ``extents``.")
    .def(
      "describe_json",
      [](PyVolume const& self) { return self.handle.describe(); },
      py::call_guard<GilReleased>())
    .def("close",
         &close<PyVolume>,
         "End what is in flight, then give back all extents and files. May be called again.");
}

void bind_extent(py::module_& module)
{
  py::class_<PyExtent> cls(
    module,
    "Extent",
    "A range of a volume: made by :meth:`Volume.allocate`. Its bytes are given back by\n"
    ":meth:`free`, by leaving its context, or with its last reference.");
  def_requests(cls);
  cls.def_readonly("nbytes", &PyExtent::nbytes, "Size in bytes, as asked for.")
    .def(
      "free",
      [](PyExtent const& self) {
        GilReleased const released;
        self.handle.free();
      },
      "Give the bytes back, once I/O in flight on them has ended. Later I/O is a ValueError.")
    .def("__len__", [](PyExtent const& self) { return self.nbytes; })
    .def("__enter__", [](py::object self) { return self; })
    .def("__exit__", [](py::object const& self, py::args const&) { self.attr("free")(); })
    .def("__repr__", [](PyExtent const& self) {
      return "<Extent of " + std::to_string(self.nbytes) + " bytes>";
    });
}

}  // namespace

void bind_io(py::module_& module)
{
  bind_engine(module);
  bind_file(module);
  bind_volume(module);
  bind_extent(module);
}

}  // namespace datapath::python
