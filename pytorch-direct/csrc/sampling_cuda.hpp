// SPDX-License-Identifier: Apache-2.0
/// @file
/// The sampling kernels of the GPU. Each function enqueues on the caller's stream and returns; none
/// allocates, none waits.
#pragma once

#include "sampling_body.hpp"

#include <cstddef>
#include <cstdint>

namespace pytorch_direct {

struct SamplingLaunch {
  int device;
  std::uintptr_t stream;
  int max_blocks;
  std::byte* workspace;  ///< For sums; `sum_workspace_bytes` of the longest list.
  std::size_t workspace_bytes;
};

[[nodiscard]] std::size_t sum_workspace_bytes(int device, std::int64_t count);

void insert_seeds_cuda(SeedArguments const& arguments, SamplingLaunch const& launch);
void count_hop_cuda(HopArguments const& arguments, SamplingLaunch const& launch);
void take_hop_cuda(HopArguments const& arguments, SamplingLaunch const& launch);

}  // namespace pytorch_direct
