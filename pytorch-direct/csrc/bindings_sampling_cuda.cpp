// SPDX-License-Identifier: Apache-2.0
#include "bindings_sampling.hpp"

#if PYTORCH_DIRECT_HAVE_CUDA

#include "sampling_cuda.hpp"

#include <pybind11/stl.h>

namespace py = pybind11;

namespace pytorch_direct {
namespace {

/// `where`: device, stream, max_blocks, workspace, workspace_bytes.
SamplingLaunch launch_of(Numbers<5> const& where)
{
  return {static_cast<int>(where[0]),
          static_cast<std::uintptr_t>(where[1]),
          static_cast<int>(where[2]),
          pointer<std::byte>(where[3]),
          static_cast<std::size_t>(where[4])};
}

}  // namespace

void bind_sampling_cuda(py::module_& module)
{
  module.def("sum_workspace_bytes", &sum_workspace_bytes);
  module.def("insert_seeds_cuda",
             [](Numbers<7> const& table, Numbers<5> const& numbers, Numbers<5> const& where) {
               GilReleased const released;
               insert_seeds_cuda(seed_arguments(table, numbers), launch_of(where));
             });
  module.def("hop_cuda",
             [](bool take,
                Relation const& relation,
                SamplingRule const& rule,
                Numbers<5> const& frontier,
                Numbers<7> const& sources,
                Numbers<5> const& edges,
                Numbers<6> const& scratch,
                Numbers<5> const& where) {
               GilReleased const released;
               auto const arguments =
                 hop_arguments(relation, rule, frontier, sources, edges, scratch);
               if (take) {
                 take_hop_cuda(arguments, launch_of(where));
               } else {
                 count_hop_cuda(arguments, launch_of(where));
               }
             });
}

}  // namespace pytorch_direct

#endif
