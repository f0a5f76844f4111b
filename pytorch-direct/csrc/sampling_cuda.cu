// SPDX-License-Identifier: Apache-2.0
#include "cuda_check.cuh"
#include "sampling_cuda.hpp"
#include "sampling_hop.hpp"

#include <cub/device/device_scan.cuh>

#include <algorithm>

namespace pytorch_direct {
namespace {

constexpr int kSamplingThreads = 256;

template <auto Body, class Arguments>
__global__ void __launch_bounds__(kSamplingThreads) sampling_kernel(Arguments const arguments)
{
  Body(arguments,
       blockIdx.x * std::int64_t{kSamplingThreads} + threadIdx.x,
       gridDim.x * std::int64_t{kSamplingThreads});
}

class CudaRunner {
 public:
  explicit CudaRunner(SamplingLaunch const& launch)
    : launch_{launch}, guard_{launch.device}, stream_{reinterpret_cast<cudaStream_t>(launch.stream)}
  {}

  template <auto Body, class Arguments>
  void run(Arguments const& arguments, std::int64_t items)
  {
    if (items <= 0) { return; }
    auto const wanted = (items + kSamplingThreads - 1) / kSamplingThreads;
    auto const blocks =
      static_cast<unsigned>(std::clamp<std::int64_t>(wanted, 1, std::max(launch_.max_blocks, 1)));
    sampling_kernel<Body><<<blocks, kSamplingThreads, 0, stream_>>>(arguments);
    check_cuda(cudaGetLastError(), "launching a sampling kernel");
  }

  void sum(std::int64_t* list, std::int64_t count)
  {
    auto bytes = launch_.workspace_bytes;
    check_cuda(cub::DeviceScan::ExclusiveSum(launch_.workspace, bytes, list, list, count, stream_),
               "summing counts of neighbours");
  }

 private:
  SamplingLaunch launch_;
  DeviceGuard guard_;
  cudaStream_t stream_;
};

}  // namespace

std::size_t sum_workspace_bytes(int device, std::int64_t count)
{
  DeviceGuard const guard{device};
  std::size_t bytes         = 0;
  std::int64_t* const lists = nullptr;
  check_cuda(cub::DeviceScan::ExclusiveSum(nullptr, bytes, lists, lists, count),
             "asking for the workspace of a sum");
  return bytes;
}

void insert_seeds_cuda(SeedArguments const& arguments, SamplingLaunch const& launch)
{
  CudaRunner runner{launch};
  insert_seeds(runner, arguments);
}

void count_hop_cuda(HopArguments const& arguments, SamplingLaunch const& launch)
{
  CudaRunner runner{launch};
  count_hop(runner, arguments);
}

void take_hop_cuda(HopArguments const& arguments, SamplingLaunch const& launch)
{
  CudaRunner runner{launch};
  take_hop(runner, arguments);
}

}  // namespace pytorch_direct
