// SPDX-License-Identifier: Apache-2.0
#include "bad_ids_publish.cuh"
#include "cuda_check.cuh"
#include "gather_cast_body.hpp"
#include "gather_cuda.hpp"

namespace pytorch_direct {
namespace {

template <class From, class To, int LoadBytes>
__global__ void __launch_bounds__(kBlockThreads, 2)
  cast_kernel(GatherArguments const arguments, Conversion const conversion, int lane_bits)
{
  auto const thread  = blockIdx.x * std::int64_t{kBlockThreads} + threadIdx.x;
  auto const threads = gridDim.x * std::int64_t{kBlockThreads};
  gather_cast_rows<From, To, LoadBytes>(arguments, conversion, lane_bits, thread, threads);
  publish_bad_ids(arguments);
}

}  // namespace

void gather_cast(GatherArguments const& arguments,
                 Conversion const& conversion,
                 Launch const& launch)
{
  DeviceGuard const guard{launch.device};
  auto const load_bytes = cast_load_bytes(arguments, conversion);
  auto const lane_bits  = cast_lane_bits(conversion, load_bytes);
  auto const threads    = (arguments.count << lane_bits) / kCastRowsAtOnce;
  auto const blocks     = launch.blocks_of(threads / kBlockThreads + 1);
  auto* const stream    = reinterpret_cast<cudaStream_t>(launch.stream);
  with_conversion(conversion, load_bytes, [&]<class From, class To, int LoadBytes>() {
    cast_kernel<From, To, LoadBytes>
      <<<blocks, kBlockThreads, 0, stream>>>(arguments, conversion, lane_bits);
  });
  check_cuda(cudaGetLastError(), "launching the gather kernel with conversion");
}

}  // namespace pytorch_direct
