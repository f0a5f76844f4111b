// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a failed call of the CUDA runtime throws; Python sees datapath_core.CudaError.
#pragma once

#include <stdexcept>
#include <string>

namespace pytorch_direct {

class CudaFailure : public std::runtime_error {
 public:
  CudaFailure(std::string const& message, int code) : std::runtime_error{message}, code_{code} {}
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

}  // namespace pytorch_direct
