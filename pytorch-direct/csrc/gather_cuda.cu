// SPDX-License-Identifier: Apache-2.0
#include "bad_ids_publish.cuh"
#include "cuda_check.cuh"
#include "gather_cuda.hpp"

#include <algorithm>

namespace pytorch_direct {
namespace {

// What hides the latency of the link is requests, of which a thread has some and a multiprocessor
// has room for 1024 threads with their registers.
template <int Width>
__global__ void __launch_bounds__(kWideBlockThreads)
  direct_kernel(GatherArguments const arguments, GatherPath const path)
{
  auto const thread  = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  auto const threads = gridDim.x * std::int64_t{blockDim.x};
  gather_direct<Width>(arguments, path, thread, threads);
  publish_bad_ids(arguments);
}

template <int Width>
__global__ void __launch_bounds__(kWideBlockThreads)
  line_kernel(GatherArguments const arguments, GatherPath const path)
{
  auto const thread  = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  auto const threads = gridDim.x * std::int64_t{blockDim.x};
  gather_line<Width>(arguments, path, thread, threads);
  publish_bad_ids(arguments);
}

template <int Width>
__global__ void __launch_bounds__(kBlockThreads)
  strided_kernel(GatherArguments const arguments, StridedRow const shape)
{
  auto const thread  = blockIdx.x * std::int64_t{kBlockThreads} + threadIdx.x;
  auto const threads = gridDim.x * std::int64_t{kBlockThreads};
  gather_strided<Width>(arguments, shape, thread, threads);
  publish_bad_ids(arguments);
}

std::int64_t threads_wanted(GatherArguments const& a,
                            GatherPath const& path,
                            StridedRow const& shape)
{
  switch (path.form) {
    case GatherForm::direct:
      return (a.count << path.lane_bits) / kRowsAtOnce + 1;
    case GatherForm::line:
      return a.count * path.lines * 8 / kRowsAtOnce + 1;
    default:
      return a.count * shape.elements;
  }
}

template <int Width>
void launch_width(GatherArguments const& a,
                  GatherPath const& path,
                  StridedRow const& shape,
                  Launch const& launch)
{
  auto const wanted  = (threads_wanted(a, path, shape) + kBlockThreads - 1) / kBlockThreads;
  auto const most    = path.form == GatherForm::direct ? launch.max_blocks : launch.more_blocks;
  auto blocks        = static_cast<unsigned>(std::clamp<std::int64_t>(wanted, 1, most));
  auto const cap     = static_cast<unsigned>(std::max(launch.cap, 1));
  auto const wide    = blocks > cap && path.form != GatherForm::strided;
  auto const threads = static_cast<unsigned>(wide ? kWideBlockThreads : kBlockThreads);
  blocks             = std::min(blocks, cap);
  auto* const stream = reinterpret_cast<cudaStream_t>(launch.stream);
  switch (path.form) {
    case GatherForm::direct:
      direct_kernel<Width><<<blocks, threads, 0, stream>>>(a, path);
      break;
    case GatherForm::line:
      line_kernel<Width><<<blocks, threads, 0, stream>>>(a, path);
      break;
    case GatherForm::strided:
      strided_kernel<Width><<<blocks, kBlockThreads, 0, stream>>>(a, shape);
      break;
  }
  check_cuda(cudaGetLastError(), "launching the gather kernel");
}

}  // namespace

void gather_bytes(GatherArguments const& arguments,
                  RowLayout const& row,
                  std::int64_t element_bytes,
                  Launch const& launch)
{
  DeviceGuard const guard{launch.device};
  if (arguments.row_bytes == 0) {
    return launch_width<1>(arguments, {GatherForm::direct, 1, 0, 0}, {}, launch);
  }
  auto const path = choose_path(arguments, row, element_bytes);
  auto const shape =
    path.form == GatherForm::strided ? strided_row(row, element_bytes) : StridedRow{};
  switch (path.width) {
    case 1:
      return launch_width<1>(arguments, path, shape, launch);
    case 2:
      return launch_width<2>(arguments, path, shape, launch);
    case 4:
      return launch_width<4>(arguments, path, shape, launch);
    case 8:
      return launch_width<8>(arguments, path, shape, launch);
    default:
      return launch_width<16>(arguments, path, shape, launch);
  }
}

int multiprocessors(int device)
{
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, device),
             "cudaDeviceGetAttribute");
  return value;
}

}  // namespace pytorch_direct
