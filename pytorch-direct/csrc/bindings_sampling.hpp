// SPDX-License-Identifier: Apache-2.0
/// @file
/// The samplers' part of the Python module `_native`.
#pragma once

#include "sampling_body.hpp"

#include <datapath/python/gil.hpp>
#include <pybind11/pybind11.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace pytorch_direct {

using datapath::python::GilReleased;

/// Addresses and sizes of one part of the arguments, in the order of its members.
template <std::size_t Count>
using Numbers = std::array<std::int64_t, Count>;

template <class T>
T* pointer(std::int64_t address)
{
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr)
}

[[nodiscard]] HopArguments hop_arguments(Relation const& relation,
                                         SamplingRule const& rule,
                                         Numbers<5> const& frontier,
                                         Numbers<7> const& sources,
                                         Numbers<5> const& edges,
                                         Numbers<6> const& scratch);

/// `numbers`: count, first, first_batch, nodes, first_bad.
[[nodiscard]] SeedArguments seed_arguments(Numbers<7> const& table, Numbers<5> const& numbers);

void bind_sampling(pybind11::module_& module);
void bind_sampling_cuda(pybind11::module_& module);

}  // namespace pytorch_direct
