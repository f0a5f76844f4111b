// SPDX-License-Identifier: Apache-2.0
/// @file
/// The CUDA driver, loaded at run time: typed functions, or the reason why there are none.
///
/// Nothing here runs before somebody opens a device, and the driver is never initialised in a
/// process forked from one that had it initialised, where it cannot work.
#pragma once

#include "shim/cuda_functions.hpp"
#include "shim/cuda_types.hpp"
#include "support/error.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace datapath::cuda {

template <class Signature>
using Function = Signature*;

/// The driver's functions. Optional ones are nullptr where the driver is too old for them.
struct Driver {
#define DATAPATH_CUDA_MEMBER(member, name, exported, version, required, ...) \
  Function<__VA_ARGS__> member{nullptr};
  DATAPATH_CUDA_FUNCTIONS(DATAPATH_CUDA_MEMBER)
#undef DATAPATH_CUDA_MEMBER
  int version{0};  ///< 13000 for CUDA 13.0.
};

enum class State : std::uint8_t {
  untried,   ///< Nobody asked for a device yet.
  missing,   ///< There is no libcuda.so.1.
  unusable,  ///< It is there, and refuses or is too old.
  ready
};

struct Status {
  State state{State::untried};
  std::string reason;  ///< Empty when ready or untried.
  int version{0};
};

/// How things stand; loads nothing.
[[nodiscard]] Status status();

/// The initialised driver; the first call loads it. Throws DP_ERR_UNSUPPORTED with the reason.
[[nodiscard]] Driver const& driver();

/// Number of visible devices; loads the driver.
[[nodiscard]] int device_count();

/// "NVIDIA H200"; loads the driver.
[[nodiscard]] std::string device_name(int ordinal);

/// The context that everyone in the process shares on a device; the first call retains it for the
/// rest of the process, since streams that were handed out live in it. Throws DP_ERR_CUDA.
[[nodiscard]] Context primary_context(int ordinal);

/// Ordinal of the calling thread's current context, else 0; loads the driver.
[[nodiscard]] int current_ordinal();

/// Ordinal of the device whose memory this is, -1 for host memory. Asks only a driver that this
/// process has loaded and initialised already, whoever did so.
[[nodiscard]] int pointer_ordinal(void const* pointer);

/// "CUDA_ERROR_INVALID_VALUE (1): invalid argument".
[[nodiscard]] std::string describe_result(Driver const& driver, Result result);

/// The error of a failed call: "cuMemAlloc(0x8) on cuda:0 failed: CUDA_ERROR_OUT_OF_MEMORY (2):
/// ...".
[[nodiscard]] ErrorInfo call_error(Driver const& driver, Result result, std::string call);

/// After main has returned the driver may be gone, so nothing calls it any more.
[[nodiscard]] bool process_exiting() noexcept;

}  // namespace datapath::cuda
