// SPDX-License-Identifier: Apache-2.0
/// @file
/// For Python modules built on datapath: giving the GIL up for a while, and taking it back also while the
/// interpreter ends. The one header here that needs Python's own.
#pragma once

#include <Python.h>
#include <unistd.h>

namespace datapath::python {

/// PyEval_RestoreThread that never unwinds its caller.
///
/// Once the interpreter ends, Python before 3.14 ends each other thread that asks for the GIL by unwinding
/// its stack. In C++ that runs destructors without the GIL, and a destructor that asks calls
/// std::terminate: a daemon thread that is inside a call when the program ends would abort the process.
/// Here such a thread waits for the end of the process, as it does from 3.14 on.
inline void take_gil(PyThreadState* state) noexcept
{
  try {
    PyEval_RestoreThread(state);
  } catch (...) {
    while (true) { ::pause(); }
  }
}

/// Other threads may run Python during the lifetime of one. Made with the GIL held.
class GilReleased {
 public:
  GilReleased() noexcept : state_{PyEval_SaveThread()} {}
  ~GilReleased() { take_gil(state_); }
  GilReleased(GilReleased const&)            = delete;
  GilReleased(GilReleased&&)                 = delete;
  GilReleased& operator=(GilReleased const&) = delete;
  GilReleased& operator=(GilReleased&&)      = delete;

 private:
  PyThreadState* state_;
};

}  // namespace datapath::python
