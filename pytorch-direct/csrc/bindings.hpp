// SPDX-License-Identifier: Apache-2.0
/// @file
/// The parts of the Python module `_native`. Tensors come in as addresses and sizes; Python has
/// checked their types, shapes and devices and keeps them alive.
#pragma once

#include "gather_cast.hpp"
#include "row_layout.hpp"

#include <datapath/python/gil.hpp>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pytorch_direct {

using datapath::python::GilReleased;

using Address = std::uintptr_t;
using Sizes   = std::vector<std::int64_t>;

inline std::byte* bytes_at(Address address)
{
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

/// What a gather converts: from and to torch's dtypes of these names, times a factor where one is
/// given and times one of each row where `row_factor` is not 0.
[[nodiscard]] Conversion conversion_of(std::string const& from,
                                       std::string const& to,
                                       std::int64_t elements,
                                       std::optional<double> factor,
                                       Address row_factor);

void bind_cpu(pybind11::module_& module);
void bind_cuda(pybind11::module_& module);
void bind_update(pybind11::module_& module);

}  // namespace pytorch_direct
