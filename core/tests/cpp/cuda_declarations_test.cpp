// SPDX-License-Identifier: Apache-2.0
/// @file
/// Compares the library's own CUDA declarations with the toolkit's, at compile time, where there is
/// one.
#include "shim/cuda.hpp"

#if __has_include(<cuda.h>)
#include <cuda.h>
#define DATAPATH_HAVE_CUDA_H 1
#elif __has_include("/usr/local/cuda/include/cuda.h")
#include "/usr/local/cuda/include/cuda.h"
#define DATAPATH_HAVE_CUDA_H 1
#endif

#include <gtest/gtest.h>

#include <cstddef>
#include <string_view>
#include <type_traits>

namespace datapath::testing {
namespace {

#ifdef DATAPATH_HAVE_CUDA_H

/// Passed alike by the platform's calling convention: pointers, or integers (enums) of one size.
template <class Ours, class Theirs>
constexpr bool passes_alike()
{
  if constexpr (std::is_pointer_v<Ours> || std::is_pointer_v<Theirs>) {
    if constexpr (!std::is_pointer_v<Ours> || !std::is_pointer_v<Theirs>) {
      return false;
    } else {
      using OursTo   = std::remove_pointer_t<Ours>;
      using TheirsTo = std::remove_pointer_t<Theirs>;
      if constexpr (std::is_const_v<OursTo> != std::is_const_v<TheirsTo>) {
        return false;
      } else if constexpr (std::is_void_v<OursTo> || std::is_void_v<TheirsTo> ||
                           std::is_function_v<OursTo>) {
        return std::is_same_v<OursTo, TheirsTo>;
      } else if constexpr (std::is_class_v<OursTo> || std::is_class_v<TheirsTo>) {
        return std::is_same_v<OursTo, TheirsTo>;
      } else {
        return passes_alike<std::remove_const_t<OursTo>, std::remove_const_t<TheirsTo>>();
      }
    }
  } else {
    return (std::is_integral_v<Ours> || std::is_enum_v<Ours>) &&
           (std::is_integral_v<Theirs> || std::is_enum_v<Theirs>) &&
           sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);
  }
}

template <class Ours, class Theirs>
struct SameSignature : std::false_type {};
template <class ResultA, class... A, class ResultB, class... B>
  requires(sizeof...(A) == sizeof...(B))
struct SameSignature<ResultA (*)(A...), ResultB (*)(B...)>
  : std::bool_constant<passes_alike<ResultA, ResultB>() && (passes_alike<A, B>() && ...)> {};

// A wrong row must not pass: one argument fewer, a narrower one, a pointer to the wrong thing.
static_assert(!SameSignature<int (*)(int), int (*)()>::value);
static_assert(!SameSignature<int (*)(unsigned), int (*)(std::size_t)>::value);
static_assert(!SameSignature<int (*)(int*), int (*)(std::size_t*)>::value);
static_assert(!SameSignature<int (*)(void*), int (*)(void const*)>::value);
static_assert(!SameSignature<int (*)(cuda::Stream), int (*)(cuda::Event)>::value);

#define DATAPATH_CHECK_SIGNATURE(member, name, exported, version, required, ...)       \
  static_assert(SameSignature<decltype(cuda::Driver::member), decltype(&name)>::value, \
                exported " is declared differently in cuda.h");
DATAPATH_CUDA_FUNCTIONS(DATAPATH_CHECK_SIGNATURE)
#undef DATAPATH_CHECK_SIGNATURE

#define DATAPATH_CHECK_VALUE(ours, theirs)                                            \
  static_assert(static_cast<long long>(cuda::ours) == static_cast<long long>(theirs), \
                #ours " differs from cuda.h")
DATAPATH_CHECK_VALUE(success, CUDA_SUCCESS);
DATAPATH_CHECK_VALUE(error_invalid_value, CUDA_ERROR_INVALID_VALUE);
DATAPATH_CHECK_VALUE(error_out_of_memory, CUDA_ERROR_OUT_OF_MEMORY);
DATAPATH_CHECK_VALUE(error_not_initialized, CUDA_ERROR_NOT_INITIALIZED);
DATAPATH_CHECK_VALUE(error_deinitialized, CUDA_ERROR_DEINITIALIZED);
DATAPATH_CHECK_VALUE(error_no_device, CUDA_ERROR_NO_DEVICE);
DATAPATH_CHECK_VALUE(error_illegal_state, CUDA_ERROR_ILLEGAL_STATE);
DATAPATH_CHECK_VALUE(error_not_ready, CUDA_ERROR_NOT_READY);
DATAPATH_CHECK_VALUE(error_host_memory_already_registered,
                     CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
DATAPATH_CHECK_VALUE(error_stream_capture_unsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
DATAPATH_CHECK_VALUE(error_stream_capture_merge, CUDA_ERROR_STREAM_CAPTURE_MERGE);
DATAPATH_CHECK_VALUE(error_stream_capture_unmatched, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
DATAPATH_CHECK_VALUE(error_stream_capture_isolation, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
DATAPATH_CHECK_VALUE(error_stream_capture_implicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
DATAPATH_CHECK_VALUE(error_captured_event, CUDA_ERROR_CAPTURED_EVENT);
DATAPATH_CHECK_VALUE(attribute_read_only_host_register_supported,
                     CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED);
DATAPATH_CHECK_VALUE(pointer_memory_type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
DATAPATH_CHECK_VALUE(pointer_device_pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER);
DATAPATH_CHECK_VALUE(pointer_device_ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
DATAPATH_CHECK_VALUE(pointer_range_start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
DATAPATH_CHECK_VALUE(pointer_range_size, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
DATAPATH_CHECK_VALUE(memory_type_host, CU_MEMORYTYPE_HOST);
DATAPATH_CHECK_VALUE(stream_non_blocking, CU_STREAM_NON_BLOCKING);
DATAPATH_CHECK_VALUE(event_disable_timing, CU_EVENT_DISABLE_TIMING);
DATAPATH_CHECK_VALUE(stream_wait_value_equal, CU_STREAM_WAIT_VALUE_EQ);
DATAPATH_CHECK_VALUE(host_register_portable, CU_MEMHOSTREGISTER_PORTABLE);
DATAPATH_CHECK_VALUE(host_register_device_map, CU_MEMHOSTREGISTER_DEVICEMAP);
DATAPATH_CHECK_VALUE(host_register_read_only, CU_MEMHOSTREGISTER_READ_ONLY);
DATAPATH_CHECK_VALUE(capture_status_none, CU_STREAM_CAPTURE_STATUS_NONE);
DATAPATH_CHECK_VALUE(capture_mode_relaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
#if CUDA_VERSION >= 11030
DATAPATH_CHECK_VALUE(proc_address_legacy_stream, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
#endif
#if CUDA_VERSION >= 12020
DATAPATH_CHECK_VALUE(attribute_host_numa_id, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
#endif
#undef DATAPATH_CHECK_VALUE

// cuda.h renames functions whose signature changed; the row must name what it renames them to.
#define DATAPATH_TEXT(name)     #name
#define DATAPATH_EXPANDED(name) DATAPATH_TEXT(name)

TEST(CudaDeclarationsTest, NameTheSymbolsThatTheHeaderMeans)
{
#define DATAPATH_CHECK_NAME(member, name, exported, version, required, ...) \
  EXPECT_EQ(std::string_view{DATAPATH_EXPANDED(name)}, exported);
  DATAPATH_CUDA_FUNCTIONS(DATAPATH_CHECK_NAME)
#undef DATAPATH_CHECK_NAME
}

#else

TEST(CudaDeclarationsTest, NameTheSymbolsThatTheHeaderMeans)
{ GTEST_SKIP() << "there is no cuda.h to compare with"; }

#endif

}  // namespace
}  // namespace datapath::testing
