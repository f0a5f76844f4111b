// SPDX-License-Identifier: Apache-2.0
#include "ticket.hpp"

#include "arguments.hpp"
#include "blocking.hpp"
#include "errors.hpp"

#include <algorithm>
#include <cstdio>

namespace datapath::python {

using client::detail::check;

namespace {

/// When a wait ends; nothing is never.
using Deadline = std::optional<std::uint64_t>;

struct Timeout {
  Deadline deadline;
  std::string text;  ///< For the message: "5 s".
};

Timeout to_timeout(py::handle timeout)
{
  bool const by_setting = timeout.is_none();
  auto const nanoseconds =
    by_setting ? to_nanoseconds(py::float_(std::stod(client::get_setting("wait.deadline").value)),
                                "wait.deadline")
               : to_nanoseconds(timeout, "timeout");
  if (!nanoseconds) { return {}; }
  char text[64];
  std::snprintf(text, sizeof(text), "%g s", static_cast<double>(*nanoseconds) / 1e9);
  return Timeout{
    monotonic_now() + *nanoseconds,
    std::string{text} + (by_setting ? " (setting wait.deadline, DATAPATH_WAIT_DEADLINE)" : "")};
}

/// Repeats a wait of at most a slice until it does not time out. `wait` runs without the GIL.
template <class Wait>
void wait_in_slices(Timeout const& timeout, Wait wait)
{
  while (true) {
    auto slice = signal_slice;
    if (timeout.deadline) {
      auto const now = monotonic_now();
      slice          = std::min(slice, *timeout.deadline - std::min(now, *timeout.deadline));
    }
    {
      GilReleased const released;
      if (check(wait(slice)) != DP_TIMEOUT) { return; }
    }
    check_signals();
    if (timeout.deadline && monotonic_now() >= *timeout.deadline) {
      raise_timeout_error("the work did not end within " + timeout.text +
                          "; it goes on, and its ticket can be waited for again");
    }
  }
}

bool done(PyTicket const& self)
{
  return std::all_of(
    self.parts.begin(), self.parts.end(), [](auto const& part) { return part.done(); });
}

std::uint64_t result(PyTicket const& self, py::handle timeout)
{
  std::uint64_t total = 0;
  std::optional<Timeout> until;
  for (auto const& part : self.parts) {
    std::uint64_t nbytes = 0;
    if (dp_ticket_test(part.get()) == DP_PENDING) {
      if (!until) { until = to_timeout(timeout); }
      wait_in_slices(
        *until, [&](std::uint64_t slice) { return dp_ticket_result(part.get(), slice, &nbytes); });
    } else {
      check(dp_ticket_result(part.get(), 0, &nbytes));
    }
    total += nbytes;
  }
  drain_graveyard();
  return total;
}

void wait(PyTicket const& self, py::handle stream, bool deferred, py::handle timeout)
{
  if (stream.is_none()) {
    result(self, timeout);
    return;
  }
  auto const handle = to_stream(stream);
  auto device       = device_of_stream(stream, self.device);
  if (!device) { device = open_device("cuda"); }
  auto const until = to_timeout(timeout);
  for (auto const& part : self.parts) {
    wait_in_slices(until, [&](std::uint64_t slice) {
      return dp_ticket_wait_stream(part.get(), device.get(), handle, deferred ? 1 : 0, slice);
    });
  }
}

}  // namespace

void bind_ticket(py::module_& module)
{
  py::class_<PyTicket>(
    module,
    "Ticket",
    "Work in flight: it can be tested, waited for by the host or by a stream, and carries its error.\n\n"
    "A ticket keeps the work's buffers alive; letting go of a ticket does not stop the work.")
    .def("done", &done, "Whether the work has ended, well or not. Never blocks.")
    .def(
      "result",
      &result,
      py::arg("timeout") = py::none(),
      "Wait for the end of the work.\n\n"
      "Parameters\n----------\ntimeout : float, optional\n"
      "    Seconds; None is the setting ``wait.deadline``, ``math.inf`` is for ever. Ctrl-C is heard\n"
      "    within 0.1 s, and the GIL is not held.\n\n"
      "Returns\n-------\nint\n    Bytes moved.\n\n"
      "Raises\n------\nTimeoutError\n    If the work did not end in time. It goes on.\n"
      "Error\n    The error of the work, at every call.")
    .def(
      "wait",
      &wait,
      py::arg("stream"),
      py::arg("deferred") = false,
      py::arg("timeout")  = py::none(),
      "Order a stream after the work.\n\n"
      "When only copies on the GPU are left, the stream waits for an event and the host goes on. While a\n"
      "disk hop is open, the host waits for it, so that no stream runs on data that failed.\n\n"
      "Parameters\n----------\nstream : int, torch.cuda.Stream or None\n"
      "    The stream; None waits on the host.\n"
      "deferred : bool\n"
      "    Never wait on the host: the stream waits for a flag. After an error the destination is filled\n"
      "    with 0xFF, and :meth:`result` must be called before results leave the program.\n"
      "timeout : float, optional\n    As for :meth:`result`.\n\n"
      "Raises\n------\nTimeoutError\n    If a disk hop did not end in time. It goes on.\n"
      "Error\n    The error of the work, where it is known.")
    .def("__repr__", [](PyTicket const& self) {
      for (auto const& part : self.parts) {
        auto const status = dp_ticket_test(part.get());
        if (status == DP_PENDING) { return "<Ticket pending>"; }
        if (status != DP_OK) { return "<Ticket failed>"; }
      }
      return "<Ticket done>";
    });
}

}  // namespace datapath::python
