// SPDX-License-Identifier: Apache-2.0
#include "scheduler.hpp"

#include "arguments.hpp"
#include "blocking.hpp"
#include "errors.hpp"
#include "transfer.hpp"

#include <array>

namespace datapath::python {

namespace {

struct Lane {
  char const* name;
  dp_lane number;
};

constexpr std::array<Lane, 5> lanes{{{"h2d", DP_LANE_H2D},
                                     {"d2h", DP_LANE_D2H},
                                     {"read", DP_LANE_READ},
                                     {"write", DP_LANE_WRITE},
                                     {"kernel", DP_LANE_KERNEL}}};

dp_lane to_lane(std::string const& name)
{
  for (auto const& lane : lanes) {
    if (name == lane.name) { return lane.number; }
  }
  raise_value_error("there is no lane '" + name +
                    "'; the lanes are h2d, d2h, read, write and kernel");
}

PyScheduler make_scheduler(PyDevice const& device,
                           py::handle chunks,
                           py::handle chunk_bytes,
                           py::handle credits)
{
  dp_scheduler_options options{};
  if (!chunks.is_none()) {
    auto const count = to_unsigned(chunks, "chunks");
    if (count < 2 || count > 1024) { raise_value_error("chunks must be in 2..1024"); }
    options.chunks = static_cast<std::uint32_t>(count);
  }
  options.chunk_bytes = to_bytes_or_default(chunk_bytes, "chunk_bytes");
  options.credits     = to_bytes_or_default(credits, "credits");
  GilReleased const released;
  auto const info = device.handle.info();
  return PyScheduler{
    client::Scheduler{device.handle, options}, device.handle, info.is_cuda != 0, info.ordinal};
}

py::dict lane_stats(PyScheduler const& self)
{
  py::dict result;
  for (auto const& lane : lanes) {
    auto const known = self.handle.stats(lane.number);
    py::dict entry;
    entry["queued"]         = known.queued;
    entry["inflight_bytes"] = known.inflight_bytes;
    entry["bytes"]          = known.bytes;
    entry["transfers"]      = known.transfers;
    entry["late"]           = known.late;
    entry["busy_seconds"]   = static_cast<double>(known.busy) / 1e9;
    result[lane.name]       = std::move(entry);
  }
  return result;
}

}  // namespace

void bind_scheduler(py::module_& module)
{
  py::class_<PyScheduler>(module, "Scheduler")
    .def(py::init(&make_scheduler),
         py::arg("device"),
         py::arg("chunks"),
         py::arg("chunk_bytes"),
         py::arg("credits"))
    .def_property_readonly("device", [](PyScheduler const& self) { return PyDevice{self.device}; })
    .def(
      "transfer",
      &transfer,
      py::arg("dst"),
      py::arg("src"),
      py::arg("nbytes") = py::none(),
      py::kw_only(),
      py::arg("priority") = 0,
      py::arg("deadline") = py::none(),
      py::arg("after")    = py::tuple(),
      py::arg("streams")  = py::none(),
      "Move bytes from one place to another; returns at once.\n\n"
      "Parameters\n----------\n"
      "dst, src : buffer, File, Extent, or (File or Extent, offset)\n"
      "    A buffer is contiguous, with the buffer protocol or DLPack, on the CPU or on the scheduler's\n"
      "    device; ordinary memory is staged through pinned memory. Neither end may be changed, and\n"
      "    ``dst`` not be used, before the ticket has ended.\n"
      "nbytes : int or str, optional\n"
      "    How many; by default the size of the buffers, which must agree, or of the one buffer or extent.\n"
      "priority : int\n    Higher ones go first within a lane.\n"
      "deadline : float, optional\n"
      "    Seconds from now; earlier ones go first within a priority, those without after them.\n"
      "after : Ticket or iterable of Ticket\n"
      "    The transfer starts after these; if one fails, it fails with that error.\n"
      "streams : int, torch.cuda.Stream or a list or tuple of them, optional\n"
      "    The transfer touches memory only after the work now on these; a file for GPU memory is read\n"
      "    before. By default torch's current stream where an end is a CUDA tensor of torch; ``()`` is\n"
      "    none.\n\n"
      "Returns\n-------\nTicket\n    Its result is the bytes moved.\n\n"
      "Raises\n------\nValueError\n"
      "    For sizes that do not agree, memory or a stream of another device, a buffer that is not contiguous\n"
      "    or, as ``dst``, read-only.\n"
      "UnsupportedError\n    If one of the streams is capturing a CUDA graph.")
    .def(
      "stream",
      [](PyScheduler const& self, std::string const& lane) {
        auto const number = to_lane(lane);
        GilReleased const released;
        return self.handle.stream(number);
      },
      py::arg("lane"),
      "The lane's own stream as an integer, for kernels and for torch's ExternalStream.\n\n"
      "Parameters\n----------\nlane : {\"h2d\", \"d2h\", \"kernel\"}\n    The lanes of the device.")
    .def(
      "stats",
      &lane_stats,
      "Returns\n-------\ndict\n"
      "    For each lane (``h2d``, ``d2h``, ``read``, ``write``, ``kernel``) a dict of ``queued``\n"
      "    transfers, ``inflight_bytes``, ``bytes`` ever moved, ``transfers`` ever ended, ``late`` ones\n"
      "    and ``busy_seconds``.")
    .def(
      "describe_json",
      [](PyScheduler const& self) { return self.handle.describe(); },
      py::call_guard<GilReleased>())
    .def(
      "close", &close<PyScheduler>, "End what is queued, then refuse more. May be called again.");

  module.def(
    "shared_scheduler",
    [](int ordinal) {
      return PyScheduler{shared_scheduler(ordinal), cuda_device(ordinal), true, ordinal};
    },
    py::arg("ordinal"));
}

}  // namespace datapath::python
