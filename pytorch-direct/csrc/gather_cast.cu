// SPDX-License-Identifier: Apache-2.0
/// @file
/// Gather with conversion: narrow numbers cross the link, wide ones are written.
#include "bad_ids_publish.cuh"
#include "cuda_check.cuh"
#include "gather_cuda.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <stdexcept>
#include <type_traits>

namespace pytorch_direct {
namespace {

/// By way of float, as torch converts.
template <class To, class From>
__device__ To converted(From value)
{
  float number;
  if constexpr (std::is_same_v<From, __half>) {
    number = __half2float(value);
  } else if constexpr (std::is_same_v<From, __nv_bfloat16>) {
    number = __bfloat162float(value);
  } else {
    number = static_cast<float>(value);
  }
  if constexpr (std::is_same_v<To, __half>) {
    return __float2half_rn(number);
  } else if constexpr (std::is_same_v<To, __nv_bfloat16>) {
    return __float2bfloat16_rn(number);
  } else {
    return number;
  }
}

template <class T>
__device__ T from_bits(Unit<sizeof(T)> bits)
{
  T value;
  memcpy(&value, &bits, sizeof(T));
  return value;
}

/// A warp a row; each thread reads one number at a time, neighbours reading neighbours.
template <class From, class To>
__global__ void __launch_bounds__(kBlockThreads, 4)
  cast_kernel(GatherArguments const arguments, std::int64_t elements, int lane_bits)
{
  auto const thread = blockIdx.x * std::int64_t{kBlockThreads} + threadIdx.x;
  auto const step   = (gridDim.x * std::int64_t{kBlockThreads}) >> lane_bits;
  auto const lanes  = std::int64_t{1} << lane_bits;
  auto const lane   = thread & (lanes - 1);
  for (auto i = thread >> lane_bits; i < arguments.count; i += step) {
    auto const row = row_of(arguments, i);
    auto* const to = reinterpret_cast<To*>(target_of(arguments, i));
    if (row < 0) {
      report_bad(arguments, i);
      for (auto j = lane; j < elements; j += lanes) {
        to[j] = from_bits<To>(all_ones<Unit<sizeof(To)>>());
      }
      continue;
    }
    auto const* const from =
      reinterpret_cast<Unit<sizeof(From)> const*>(arguments.table + row * arguments.stride);
    for (auto j = lane; j < elements; j += lanes) {
      to[j] = converted<To>(from_bits<From>(load(from + j)));
    }
  }
  publish_bad_ids(arguments);
}

template <class From, class To>
void launch_cast(GatherArguments const& a, std::int64_t elements, Launch const& launch)
{
  int lane_bits = 0;
  while (lane_bits < 5 && (std::int64_t{1} << lane_bits) < elements) { ++lane_bits; }
  auto const wanted = ((a.count << lane_bits) + kBlockThreads - 1) / kBlockThreads;
  auto const blocks = static_cast<unsigned>(std::clamp<std::int64_t>(wanted, 1, launch.max_blocks));
  auto* const stream = reinterpret_cast<cudaStream_t>(launch.stream);
  cast_kernel<From, To><<<blocks, kBlockThreads, 0, stream>>>(a, elements, lane_bits);
  check_cuda(cudaGetLastError(), "launching the gather kernel with conversion");
}

template <class From>
void launch_to(GatherArguments const& a, std::int64_t elements, Cast to, Launch const& launch)
{
  switch (to) {
    case Cast::float32:
      return launch_cast<From, float>(a, elements, launch);
    case Cast::float16:
      return launch_cast<From, __half>(a, elements, launch);
    case Cast::bfloat16:
      return launch_cast<From, __nv_bfloat16>(a, elements, launch);
    default:
      throw std::invalid_argument("gather_cast: no kernel converts to this type");
  }
}

}  // namespace

void gather_cast(GatherArguments const& arguments,
                 std::int64_t elements,
                 CastPair cast,
                 Launch const& launch)
{
  DeviceGuard const guard{launch.device};
  switch (cast.from) {
    case Cast::float64:
      return launch_to<double>(arguments, elements, cast.to, launch);
    case Cast::float32:
      return launch_to<float>(arguments, elements, cast.to, launch);
    case Cast::float16:
      return launch_to<__half>(arguments, elements, cast.to, launch);
    case Cast::bfloat16:
      return launch_to<__nv_bfloat16>(arguments, elements, cast.to, launch);
    case Cast::float8_e4m3fn:
      return launch_to<__nv_fp8_e4m3>(arguments, elements, cast.to, launch);
    case Cast::float8_e5m2:
      return launch_to<__nv_fp8_e5m2>(arguments, elements, cast.to, launch);
    case Cast::int8:
      return launch_to<signed char>(arguments, elements, cast.to, launch);
    case Cast::uint8:
      return launch_to<unsigned char>(arguments, elements, cast.to, launch);
    default:
      throw std::invalid_argument("gather_cast: no kernel converts from this type");
  }
}

}  // namespace pytorch_direct
