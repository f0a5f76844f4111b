// SPDX-License-Identifier: Apache-2.0
#include "cuda_check.cuh"
#include "event_wait.hpp"

namespace pytorch_direct {

void wait_for_event(int device, std::uintptr_t event)
{
  DeviceGuard const guard{device};
  RelaxedCapture const relaxed;
  check_cuda(cudaEventSynchronize(reinterpret_cast<cudaEvent_t>(event)), "cudaEventSynchronize");
}

}  // namespace pytorch_direct
