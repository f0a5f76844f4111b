// SPDX-License-Identifier: Apache-2.0
#include "transfer.hpp"

#include "arguments.hpp"
#include "errors.hpp"
#include "io.hpp"
#include "operand.hpp"
#include "scheduler.hpp"

#include <optional>

namespace datapath::python {

namespace {

struct End {
  dp_place place{};
  std::optional<std::uint64_t> nbytes;  ///< From the offset to the end; nothing for a file.
  Operand memory;                       ///< Of a buffer.
  bool on_disk{false};
};

std::optional<End> disk_end(py::handle object, std::uint64_t offset)
{
  End end;
  end.on_disk = true;
  if (is_a<PyFile>(object)) {
    end.place = client::file_place(object.cast<PyFile const&>().handle, offset);
    return end;
  }
  if (is_a<PyExtent>(object)) {
    auto const& extent = object.cast<PyExtent const&>();
    if (offset > extent.nbytes) {
      raise_value_error("offset " + std::to_string(offset) + " lies past the extent's " +
                        std::to_string(extent.nbytes) + " bytes");
    }
    end.place  = client::extent_place(extent.handle, offset);
    end.nbytes = extent.nbytes - offset;
    return end;
  }
  return std::nullopt;
}

End to_end(py::handle object, Access access, PyScheduler const& scheduler, Kept& kept)
{
  if (PyTuple_Check(object.ptr()) != 0 && PyTuple_GET_SIZE(object.ptr()) == 2) {
    py::handle const disk = PyTuple_GET_ITEM(object.ptr(), 0);
    auto const offset     = to_unsigned(PyTuple_GET_ITEM(object.ptr(), 1), "offset");
    if (auto end = disk_end(disk, offset)) {
      kept.keep(py::reinterpret_borrow<py::object>(disk));
      return *end;
    }
    raise_type_error("an end in two parts is (File or Extent, offset), not (" + type_name(disk) +
                     ", ...)");
  }
  if (auto end = disk_end(object, 0)) {
    kept.keep(py::reinterpret_borrow<py::object>(object));
    return *end;
  }
  End end;
  end.memory = to_operand(object, access, kept);
  end.nbytes = end.memory.nbytes;
  if (end.memory.is_host()) {
    end.place = client::host_place(end.memory.pointer());
    return end;
  }
  bool const is_ours = end.memory.kind == MemoryKind::cuda
                         ? scheduler.is_cuda && scheduler.ordinal == end.memory.ordinal
                         : !scheduler.is_cuda;
  if (!is_ours) {
    raise_value_error("the buffer is on another device than the scheduler, " +
                      std::string{scheduler.device.info().name} +
                      "; use a scheduler of its device");
  }
  end.place = client::device_place(end.memory.address);
  return end;
}

std::uint64_t transfer_size(End const& destination, End const& source, py::handle given)
{
  if (!given.is_none()) {
    auto const nbytes = to_bytes(given, "nbytes");
    for (auto const& [end, name] : {std::pair{&destination, "dst"}, std::pair{&source, "src"}}) {
      if (end->nbytes && *end->nbytes < nbytes) {
        raise_value_error("nbytes is " + std::to_string(nbytes) + ", but " + name + " has " +
                          std::to_string(*end->nbytes) + " bytes");
      }
    }
    return nbytes;
  }
  if (!destination.on_disk && !source.on_disk && destination.nbytes != source.nbytes) {
    raise_value_error("dst has " + std::to_string(*destination.nbytes) + " bytes and src " +
                      std::to_string(*source.nbytes) + "; give nbytes to move a part");
  }
  // A buffer says how much is meant; only without one does an extent.
  auto const& deciding =
    destination.on_disk && (!source.on_disk || !destination.nbytes) ? source : destination;
  if (!deciding.nbytes) {
    raise_value_error("give nbytes: neither end says how much is to be moved");
  }
  auto const& other = &deciding == &source ? destination : source;
  if (other.nbytes && *other.nbytes < *deciding.nbytes) {
    raise_value_error("the buffer has " + std::to_string(*deciding.nbytes) +
                      " bytes, but the extent only " + std::to_string(*other.nbytes) +
                      "; give nbytes to move a part");
  }
  return *deciding.nbytes;
}

/// Handles of default streams are the same on every device, so the driver could not tell.
dp_stream to_own_stream(py::handle stream, PyScheduler const& scheduler)
{
  if (PyLong_Check(stream.ptr()) == 0 && py::hasattr(stream, "device_index")) {
    auto const ordinal = stream.attr("device_index").cast<int>();
    if (!scheduler.is_cuda || ordinal != scheduler.ordinal) {
      raise_value_error("a stream of cuda:" + std::to_string(ordinal) +
                        " cannot be followed by a scheduler of " +
                        std::string{scheduler.device.info().name} +
                        "; let a stream of the scheduler's device wait for it, and pass that one");
    }
  }
  return to_stream(stream);
}

std::vector<dp_stream> to_streams(py::handle streams,
                                  Operand const& destination,
                                  Operand const& source,
                                  PyScheduler const& scheduler)
{
  if (streams.is_none()) { return streams_before({destination, source}); }
  std::vector<dp_stream> result;
  if (py::isinstance<py::tuple>(streams) || py::isinstance<py::list>(streams)) {
    for (auto const stream : streams) { result.push_back(to_own_stream(stream, scheduler)); }
  } else {
    result.push_back(to_own_stream(streams, scheduler));
  }
  return result;
}

std::vector<dp_ticket*> to_tickets(py::handle after)
{
  std::vector<dp_ticket*> result;
  auto const add = [&](py::handle item) {
    if (!is_a<PyTicket>(item)) { raise_type_error("after takes tickets, not " + type_name(item)); }
    for (auto const& part : item.cast<PyTicket const&>().parts) { result.push_back(part.get()); }
  };
  if (is_a<PyTicket>(after)) {
    add(after);
  } else {
    for (auto const item : py::reinterpret_borrow<py::iterable>(after)) { add(item); }
  }
  return result;
}

}  // namespace

PyTicket transfer(PyScheduler const& scheduler,
                  py::handle destination,
                  py::handle source,
                  py::handle nbytes,
                  py::handle priority,
                  py::handle deadline,
                  py::handle after,
                  py::handle streams)
{
  drain_graveyard();
  auto kept       = std::make_unique<Kept>();
  auto const to   = to_end(destination, Access::write, scheduler, *kept);
  auto const from = to_end(source, Access::read, scheduler, *kept);
  auto const size = transfer_size(to, from, nbytes);
  auto const due  = to_nanoseconds(deadline, "deadline");
  // A generator's tickets would be gone before they are used: the list keeps them.
  py::object const predecessors =
    is_a<PyTicket>(after) || PyTuple_CheckExact(after.ptr()) != 0
      ? py::reinterpret_borrow<py::object>(after)
      : py::object{py::list(py::reinterpret_borrow<py::object>(after))};
  auto const before_tickets = to_tickets(predecessors);
  auto const before_streams = to_streams(streams, to.memory, from.memory, scheduler);

  dp_transfer_options options{};
  options.priority           = to_int(priority, "priority");
  options.deadline           = due ? monotonic_now() + *due : 0;
  options.after_streams      = before_streams.data();
  options.after_stream_count = before_streams.size();
  options.after_tickets      = before_tickets.data();
  options.after_ticket_count = before_tickets.size();
  options.owner              = owner_of(std::move(kept));
  PyTicket ticket{{}, scheduler.device};
  {
    GilReleased const released;
    ticket.parts.push_back(scheduler.handle.transfer(to.place, from.place, size, options));
  }
  return ticket;
}

}  // namespace datapath::python
