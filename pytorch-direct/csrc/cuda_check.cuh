// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checked calls of the CUDA runtime, and guards that put back what they change.
#pragma once

#include "cuda_failure.hpp"

#include <cuda_runtime_api.h>

#include <string>

namespace pytorch_direct {

inline void check_cuda(cudaError_t status, char const* what)
{
  if (status == cudaSuccess) { return; }
  // A later call must not be blamed for this one.
  (void)cudaGetLastError();
  std::string message = std::string{what} + " failed: " + cudaGetErrorString(status) + " (" +
                        cudaGetErrorName(status) + ")";
  if (status == cudaErrorNoKernelImageForDevice) {
    message +=
      "; pytorch_direct.cuda_architectures names what this build has kernels for: build it again "
      "with PYTORCH_DIRECT_ARCHS set to this GPU's architecture";
  }
  throw CudaFailure{message, static_cast<int>(status)};
}

class DeviceGuard {
 public:
  explicit DeviceGuard(int device)
  {
    check_cuda(cudaGetDevice(&before_), "cudaGetDevice");
    if (before_ != device) {
      check_cuda(cudaSetDevice(device), "cudaSetDevice");
      changed_ = true;
    }
  }
  DeviceGuard(DeviceGuard const&)            = delete;
  DeviceGuard& operator=(DeviceGuard const&) = delete;
  ~DeviceGuard()
  {
    if (changed_) { (void)cudaSetDevice(before_); }
  }

 private:
  int before_   = 0;
  bool changed_ = false;
};

/// Lets this thread allocate while another stream records a graph.
class RelaxedCapture {
 public:
  RelaxedCapture()
  { check_cuda(cudaThreadExchangeStreamCaptureMode(&mode_), "exchanging the capture mode"); }
  RelaxedCapture(RelaxedCapture const&)            = delete;
  RelaxedCapture& operator=(RelaxedCapture const&) = delete;
  ~RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace pytorch_direct
