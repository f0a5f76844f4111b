// SPDX-License-Identifier: Apache-2.0
/// @file
/// The driver API's types and values that this library uses, declared here so that it builds
/// without a CUDA toolkit. A test compares each with cuda.h where that exists.
#pragma once

#include <cstdint>

// The driver's own tags, so that pointers to them are the same type for whoever includes cuda.h
// too.
struct CUctx_st;
struct CUstream_st;
struct CUevent_st;

namespace datapath::cuda {

using Result        = std::int32_t;        ///< CUresult.
using DeviceHandle  = int;                 ///< CUdevice.
using Context       = CUctx_st*;           ///< CUcontext.
using Stream        = CUstream_st*;        ///< CUstream.
using Event         = CUevent_st*;         ///< CUevent.
using DevicePointer = unsigned long long;  // NOLINT(google-runtime-int): CUdeviceptr's own spelling

// ---- CUresult
inline constexpr Result success                              = 0;
inline constexpr Result error_invalid_value                  = 1;
inline constexpr Result error_out_of_memory                  = 2;
inline constexpr Result error_not_initialized                = 3;
inline constexpr Result error_deinitialized                  = 4;
inline constexpr Result error_no_device                      = 100;
inline constexpr Result error_invalid_context                = 201;
inline constexpr Result error_illegal_state                  = 401;
inline constexpr Result error_not_ready                      = 600;
inline constexpr Result error_host_memory_already_registered = 712;
inline constexpr Result error_stream_capture_unsupported     = 900;
inline constexpr Result error_stream_capture_merge           = 902;
inline constexpr Result error_stream_capture_unmatched       = 903;
inline constexpr Result error_stream_capture_isolation       = 905;
inline constexpr Result error_stream_capture_implicit        = 906;
inline constexpr Result error_captured_event                 = 907;

// ---- CUdevice_attribute
inline constexpr int attribute_read_only_host_register_supported = 113;
inline constexpr int attribute_host_numa_id                      = 134;

// ---- CUpointer_attribute and CUmemorytype
inline constexpr int pointer_memory_type      = 2;
inline constexpr int pointer_device_pointer   = 3;
inline constexpr int pointer_device_ordinal   = 9;
inline constexpr int pointer_range_start      = 11;
inline constexpr int pointer_range_size       = 12;
inline constexpr unsigned memory_type_unknown = 0;
inline constexpr unsigned memory_type_host    = 1;

// ---- flags
inline constexpr unsigned stream_non_blocking             = 1;
inline constexpr unsigned event_disable_timing            = 2;
inline constexpr unsigned stream_wait_value_equal         = 1;
inline constexpr unsigned host_register_portable          = 1;
inline constexpr unsigned host_register_device_map        = 2;
inline constexpr unsigned host_register_read_only         = 8;
inline constexpr int capture_status_none                  = 0;
inline constexpr int capture_mode_relaxed                 = 2;
inline constexpr std::uint64_t proc_address_legacy_stream = 1;

}  // namespace datapath::cuda
