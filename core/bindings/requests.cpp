// SPDX-License-Identifier: Apache-2.0
#include "requests.hpp"

#include "arguments.hpp"
#include "errors.hpp"
#include "scheduler.hpp"

namespace datapath::python {

namespace {

client::Ticket submit_host(DiskEnd const& end,
                           std::span<dp_io_request const> requests,
                           std::unique_ptr<Kept> kept)
{
  auto const owner = owner_of(std::move(kept));
  GilReleased const released;
  return end.on_host(requests, owner);
}

client::Ticket submit_device(DiskEnd const& end,
                             Access access,
                             Operand const& memory,
                             std::uint64_t offset,
                             std::unique_ptr<Kept> kept)
{
  if (memory.kind == MemoryKind::null_device) {
    raise_type_error(
      "memory of the null device has no scheduler of its own; use Scheduler.transfer");
  }
  kept->keep(end.self);
  auto const streams   = streams_before({memory});
  auto const scheduler = shared_scheduler(memory.ordinal);
  auto const on_disk   = end.place(offset);
  auto const on_device = client::device_place(memory.address);
  dp_transfer_options options{};
  options.after_streams      = streams.data();
  options.after_stream_count = streams.size();
  options.owner              = owner_of(std::move(kept));
  GilReleased const released;
  return access == Access::write ? scheduler.transfer(on_device, on_disk, memory.nbytes, options)
                                 : scheduler.transfer(on_disk, on_device, memory.nbytes, options);
}

}  // namespace

PyTicket submit(DiskEnd const& end, Access access, py::handle buffer, py::handle offset)
{
  drain_graveyard();
  auto const at     = to_unsigned(offset, "offset");
  auto kept         = std::make_unique<Kept>();
  auto const memory = to_operand(buffer, access, *kept);
  PyTicket ticket;
  if (memory.is_host()) {
    dp_io_request const request{memory.pointer(), memory.nbytes, at};
    ticket.parts.push_back(submit_host(end, {&request, 1}, std::move(kept)));
  } else {
    ticket.device = cuda_device(memory.ordinal);
    ticket.parts.push_back(submit_device(end, access, memory, at, std::move(kept)));
  }
  return ticket;
}

PyTicket submit_batch(DiskEnd const& end, Access access, py::iterable pairs)
{
  drain_graveyard();
  PyTicket ticket;
  auto host_kept = std::make_unique<Kept>();
  std::vector<dp_io_request> host_requests;
  struct OnDevice {
    Operand memory;
    std::uint64_t offset;
    std::unique_ptr<Kept> kept;
  };
  std::vector<OnDevice> on_device;
  // Everything is checked before anything starts, so that an error leaves nothing half done.
  for (auto const item : pairs) {
    if (!py::isinstance<py::sequence>(item) || py::len(item) != 2) {
      raise_type_error("a batch is made of (buffer, offset) pairs, not of " + type_name(item));
    }
    auto const pair   = py::reinterpret_borrow<py::sequence>(item);
    auto kept         = std::make_unique<Kept>();
    py::object buffer = pair[0];
    py::object offset = pair[1];
    auto const at     = to_unsigned(offset, "offset");
    if (auto const memory = to_operand(buffer, access, *kept); memory.is_host()) {
      host_requests.push_back({memory.pointer(), memory.nbytes, at});
      host_kept->take(*kept);
    } else {
      on_device.push_back({memory, at, std::move(kept)});
    }
  }
  for (auto& request : on_device) {
    ticket.device = cuda_device(request.memory.ordinal);
    ticket.parts.push_back(
      submit_device(end, access, request.memory, request.offset, std::move(request.kept)));
  }
  if (!host_requests.empty() || ticket.parts.empty()) {
    ticket.parts.push_back(submit_host(end, host_requests, std::move(host_kept)));
  }
  return ticket;
}

}  // namespace datapath::python
