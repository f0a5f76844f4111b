// SPDX-License-Identifier: Apache-2.0
/// @file
/// The parts of the Python module `_native`. Tensors come in as addresses and sizes; Python has
/// checked their types, shapes and devices and keeps them alive.
#pragma once

#include "row_layout.hpp"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pytorch_direct {

using Address = std::uintptr_t;
using Sizes   = std::vector<std::int64_t>;

inline std::byte* bytes_at(Address address)
{
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

void bind_cpu(pybind11::module_& module);
void bind_cuda(pybind11::module_& module);

}  // namespace pytorch_direct
