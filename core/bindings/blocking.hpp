// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls that may block: without the GIL, and so that Ctrl-C is heard within 0.1 s.
#pragma once

#include "graveyard.hpp"

#include <datapath/python/gil.hpp>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <functional>

namespace datapath::python {

/// Longest wait between two looks at signals, in nanoseconds.
constexpr std::uint64_t signal_slice = 50'000'000;

/// Raises what a signal handler raised, KeyboardInterrupt above all. Needs the GIL.
void check_signals();

/// Runs `body` on a thread of its own and waits for it. A signal's exception leaves it running, so it must
/// own what it uses. Errors of `body` are thrown here.
void run_interruptibly(std::function<void()> body);

/// `close` of a class whose member `handle` has one.
template <class Class>
void close(Class const& self)
{
  run_interruptibly([handle = self.handle] { handle.close(); });
}

/// Lets a handle go without the GIL: the last reference may join threads or enter the driver.
template <class Handle>
void let_go(Handle& handle) noexcept
{
  if (!handle) { return; }
  // While the interpreter ends, other threads must not be let in any more.
  if (interpreter_ends() || PyGILState_Check() == 0) {
    handle = Handle{};
    return;
  }
  PyThreadState* const state = PyEval_SaveThread();
  handle                     = Handle{};
  take_gil(state);
}

}  // namespace datapath::python
