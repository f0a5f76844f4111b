// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"
#include "blocking.hpp"
#include "buffer.hpp"
#include "errors.hpp"

namespace datapath::python {

namespace {

struct PyPool {
  client::Pool handle;
  client::Device device;

  PyPool(client::Pool pool, client::Device on) : handle{std::move(pool)}, device{std::move(on)} {}
  PyPool(PyPool const&)            = default;
  PyPool& operator=(PyPool const&) = default;
  ~PyPool()
  {
    let_go(handle);
    let_go(device);
  }
};

client::Device device_or_none(PyDevice const* device)
{ return device == nullptr ? client::Device{} : device->handle; }

PyPool make_pool(py::handle budget,
                 py::handle numa_node,
                 py::handle huge_pages,
                 py::handle lock,
                 py::handle piece_bytes,
                 PyDevice const* device)
{
  dp_pool_options options{};
  options.budget      = to_bytes_or_default(budget, "budget");
  options.piece_bytes = to_bytes_or_default(piece_bytes, "piece_bytes");
  options.huge_pages  = to_switch(huge_pages);
  options.lock        = to_switch(lock);
  if (!budget.is_none() && options.budget == 0) {
    raise_value_error("a budget of 0 bytes holds nothing; None is bounded by the machine");
  }
  if (!numa_node.is_none()) {
    auto const node = to_unsigned(numa_node, "numa_node");
    if (node > 1023) { raise_value_error("numa_node must be in 0..1023"); }
    options.numa_node = static_cast<int>(node) + 1;
  }
  auto on        = device_or_none(device);
  options.device = on.get();
  GilReleased const released;
  return PyPool{client::Pool{options}, std::move(on)};
}

PyBuffer allocate(PyPool const& pool, py::handle nbytes, py::handle alignment)
{
  auto const size  = to_bytes(nbytes, "nbytes");
  auto const align = to_bytes(alignment, "alignment");
  drain_graveyard();
  client::Buffer buffer;
  {
    GilReleased const released;
    buffer = pool.handle.allocate(size, align);
  }
  return PyBuffer{std::move(buffer), pool.device, false};
}

py::dict stats(PyPool const& pool)
{
  auto const known = pool.handle.stats();
  py::dict result;
  result["is_pinned"]      = known.is_pinned != 0;
  result["budget"]         = known.budget;
  result["backed"]         = known.backed;
  result["pinned"]         = known.pinned;
  result["allocated"]      = known.allocated;
  result["requested"]      = known.requested;
  result["pending"]        = known.pending;
  result["peak_allocated"] = known.peak_allocated;
  result["allocations"]    = known.allocations;
  result["live_buffers"]   = known.live_buffers;
  result["pieces"]         = known.pieces;
  return result;
}

PyBuffer register_object(py::handle object, bool read_only, bool required, PyDevice const* device)
{
  drain_graveyard();
  auto kept          = std::make_unique<Kept>();
  auto const operand = to_operand(object, read_only ? Access::read : Access::write, *kept);
  if (!operand.is_host()) {
    raise_type_error("only memory of the CPU can be registered, not a device's");
  }
  if (operand.from_torch) {
    // A tensor can be pointed at another storage; the registered bytes must stay where they are.
    kept->keep(object.attr("untyped_storage")());
  }
  auto on = device_or_none(device);
  dp_register_options options{};
  options.read_only = read_only ? 1 : 0;
  options.required  = required ? 1 : 0;
  options.device    = on.get();
  client::Buffer buffer;
  {
    auto const owner = owner_of(std::move(kept));
    GilReleased const released;
    buffer = client::register_memory(operand.pointer(), operand.nbytes, options, owner);
  }
  return PyBuffer{std::move(buffer), std::move(on), read_only};
}

}  // namespace

void bind_pool(py::module_& module)
{
  py::class_<PyPool>(module, "Pool")
    .def(py::init(&make_pool),
         py::arg("budget"),
         py::arg("numa_node"),
         py::arg("huge_pages"),
         py::arg("lock"),
         py::arg("piece_bytes"),
         py::arg("device").none(true))
    .def(
      "allocate",
      &allocate,
      py::arg("nbytes"),
      py::arg("alignment") = 0,
      "Memory of exactly ``nbytes``, at a grain of 4 KiB.\n\n"
      "Parameters\n----------\nnbytes : int or str\n    Size; 0 is legal.\nalignment : int or str\n"
      "    A power of two up to 2 MiB; 0 is 4096.\n\n"
      "Returns\n-------\nBuffer\n    Its content is undefined.\n\n"
      "Raises\n------\nBudgetError\n    If the budget or the machine's memory would be exceeded.\n"
      "ValueError\n    If the pool is closed.")
    .def(
      "reserve",
      [](PyPool const& self, py::handle nbytes) {
        run_interruptibly(
          [pool = self.handle, size = to_bytes(nbytes, "nbytes")] { pool.reserve(size); });
      },
      py::arg("nbytes"),
      "Back and register at least this many free bytes now, so that later allocations are quick.\n\n"
      "Raises\n------\nBudgetError\n    If the budget or the machine's memory would be exceeded.")
    .def(
      "trim",
      [](PyPool const& self) {
        drain_graveyard();
        GilReleased const released;
        return self.handle.trim();
      },
      "Give back memory that no buffer uses; returns the bytes.")
    .def(
      "stats",
      &stats,
      "Exact statistics, in bytes where a number is not a count.\n\n"
      "Returns\n-------\ndict\n"
      "    ``budget``; ``backed`` by memory now; ``pinned`` of these; ``allocated`` by live buffers, at a\n"
      "    grain of 4 KiB; ``requested`` by them; ``pending`` events before reuse; ``peak_allocated``;\n"
      "    counts ``allocations``, ``live_buffers``, ``pieces``; and ``is_pinned``.")
    .def("close",
         &close<PyPool>,
         "Refuse more allocations; the memory goes back when the last buffer does.");

  module.def("register",
             &register_object,
             py::arg("object"),
             py::arg("read_only"),
             py::arg("required"),
             py::arg("device").none(true));
}

}  // namespace datapath::python
