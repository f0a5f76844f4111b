// SPDX-License-Identifier: Apache-2.0
#include "bad_ids_publish.cuh"
#include "cuda_check.cuh"
#include "update_body.hpp"
#include "update_cuda.hpp"

namespace pytorch_direct {
namespace {

template <class T, Rule R>
__global__ void __launch_bounds__(kBlockThreads, 2)
  update_kernel(UpdateArguments const arguments, GatherArguments const as_given)
{
  auto const thread  = blockIdx.x * std::int64_t{kBlockThreads} + threadIdx.x;
  auto const threads = gridDim.x * std::int64_t{kBlockThreads};
  update_rows<T, R>(arguments, kUpdateLaneBits, thread, threads);
  if (as_given.ids == nullptr) { return; }
  for (auto i = thread; i < as_given.count; i += threads) {
    if (row_of(as_given, i) < 0) { report_bad(as_given, i); }
  }
  publish_bad_ids(as_given);
}

}  // namespace

void update_cuda(UpdateArguments const& arguments,
                 GatherArguments const& as_given,
                 Number number,
                 Rule rule,
                 Launch const& launch)
{
  DeviceGuard const guard{launch.device};
  auto const wanted  = (arguments.count << kUpdateLaneBits) / kBlockThreads + 1;
  auto const blocks  = launch.blocks_of(wanted);
  auto* const stream = reinterpret_cast<cudaStream_t>(launch.stream);
  with_update(number, rule, [&]<class T, Rule R>() {
    update_kernel<T, R><<<blocks, kBlockThreads, 0, stream>>>(arguments, as_given);
  });
  check_cuda(cudaGetLastError(), "launching the kernel that changes rows");
}

}  // namespace pytorch_direct
