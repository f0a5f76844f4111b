// SPDX-License-Identifier: Apache-2.0
/// @file
/// Python objects lent to work in flight. A thread of the library that is done with them only lays them
/// down here, without the GIL; a thread that has the GIL lets them go later.
#pragma once

#include <datapath/datapath.hpp>
#include <pybind11/pybind11.h>

#include <forward_list>
#include <vector>

namespace datapath::python {

namespace py = pybind11;

/// What one piece of work keeps alive. Made and destroyed with the GIL.
class Kept {
 public:
  Kept() { objects_.reserve(2); }
  Kept(Kept const&)            = delete;
  Kept& operator=(Kept const&) = delete;
  ~Kept();

  void keep(py::object object) { objects_.push_back(std::move(object)); }
  /// Room for a buffer-protocol view, at an address that stays; `drop_view` takes back the newest.
  Py_buffer* new_view() { return &views_.emplace_front(); }
  void drop_view() { views_.pop_front(); }
  /// Takes over all that `other` keeps.
  void take(Kept& other);

 private:
  friend void bury(Kept* kept) noexcept;
  friend void drain_graveyard() noexcept;
  std::vector<py::object> objects_;
  std::forward_list<Py_buffer> views_;
  Kept* next_{nullptr};
};

/// From any thread, without the GIL: `kept` goes when a thread with the GIL drains the graveyard.
void bury(Kept* kept) noexcept;

/// Lets go of everything buried. Needs the GIL; cheap when there is nothing.
void drain_graveyard() noexcept;

/// The owner for the C ABI: releasing it buries what is kept.
[[nodiscard]] inline dp_owner owner_of(std::unique_ptr<Kept> kept)
{
  return dp_owner{[](void* context) { bury(static_cast<Kept*>(context)); }, kept.release()};
}

/// From here on nothing is let go any more: the interpreter ends, the process's memory with it.
void close_graveyard() noexcept;
/// Whether `close_graveyard` was called.
[[nodiscard]] bool interpreter_ends() noexcept;

}  // namespace datapath::python
