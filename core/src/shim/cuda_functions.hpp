// SPDX-License-Identifier: Apache-2.0
/// @file
/// The driver functions that this library calls, one row each: X(member, name, exported name, CUDA
/// version of this signature, required, signature). cuGetProcAddress is asked for name and version,
/// dlsym for the exported name. A test compares every row with cuda.h where that exists.
#pragma once

#define DATAPATH_CUDA_FUNCTIONS(X)                                                                 \
  X(init, cuInit, "cuInit", 2000, true, Result(unsigned flags))                                    \
  X(driver_get_version,                                                                            \
    cuDriverGetVersion,                                                                            \
    "cuDriverGetVersion",                                                                          \
    2020,                                                                                          \
    true,                                                                                          \
    Result(int* version))                                                                          \
  X(get_error_name,                                                                                \
    cuGetErrorName,                                                                                \
    "cuGetErrorName",                                                                              \
    6000,                                                                                          \
    true,                                                                                          \
    Result(Result error, char const** text))                                                       \
  X(get_error_string,                                                                              \
    cuGetErrorString,                                                                              \
    "cuGetErrorString",                                                                            \
    6000,                                                                                          \
    true,                                                                                          \
    Result(Result error, char const** text))                                                       \
  X(device_get_count, cuDeviceGetCount, "cuDeviceGetCount", 2000, true, Result(int* count))        \
  X(device_get, cuDeviceGet, "cuDeviceGet", 2000, true, Result(DeviceHandle* device, int ordinal)) \
  X(device_get_name,                                                                               \
    cuDeviceGetName,                                                                               \
    "cuDeviceGetName",                                                                             \
    2000,                                                                                          \
    true,                                                                                          \
    Result(char* name, int length, DeviceHandle device))                                           \
  X(device_get_attribute,                                                                          \
    cuDeviceGetAttribute,                                                                          \
    "cuDeviceGetAttribute",                                                                        \
    2000,                                                                                          \
    true,                                                                                          \
    Result(int* value, int attribute, DeviceHandle device))                                        \
  X(device_get_pci_bus_id,                                                                         \
    cuDeviceGetPCIBusId,                                                                           \
    "cuDeviceGetPCIBusId",                                                                         \
    4010,                                                                                          \
    true,                                                                                          \
    Result(char* text, int length, DeviceHandle device))                                           \
  X(primary_retain,                                                                                \
    cuDevicePrimaryCtxRetain,                                                                      \
    "cuDevicePrimaryCtxRetain",                                                                    \
    7000,                                                                                          \
    true,                                                                                          \
    Result(Context* context, DeviceHandle device))                                                 \
  X(context_push, cuCtxPushCurrent, "cuCtxPushCurrent_v2", 4000, true, Result(Context context))    \
  X(context_pop, cuCtxPopCurrent, "cuCtxPopCurrent_v2", 4000, true, Result(Context* context))      \
  X(context_get_current, cuCtxGetCurrent, "cuCtxGetCurrent", 4000, true, Result(Context* context)) \
  X(context_get_device,                                                                            \
    cuCtxGetDevice,                                                                                \
    "cuCtxGetDevice",                                                                              \
    2000,                                                                                          \
    true,                                                                                          \
    Result(DeviceHandle* device))                                                                  \
  X(stream_priority_range,                                                                         \
    cuCtxGetStreamPriorityRange,                                                                   \
    "cuCtxGetStreamPriorityRange",                                                                 \
    5050,                                                                                          \
    true,                                                                                          \
    Result(int* least, int* greatest))                                                             \
  X(stream_create,                                                                                 \
    cuStreamCreateWithPriority,                                                                    \
    "cuStreamCreateWithPriority",                                                                  \
    5050,                                                                                          \
    true,                                                                                          \
    Result(Stream* stream, unsigned flags, int priority))                                          \
  X(stream_destroy, cuStreamDestroy, "cuStreamDestroy_v2", 4000, true, Result(Stream stream))      \
  X(stream_synchronize,                                                                            \
    cuStreamSynchronize,                                                                           \
    "cuStreamSynchronize",                                                                         \
    2000,                                                                                          \
    true,                                                                                          \
    Result(Stream stream))                                                                         \
  X(stream_is_capturing,                                                                           \
    cuStreamIsCapturing,                                                                           \
    "cuStreamIsCapturing",                                                                         \
    10000,                                                                                         \
    true,                                                                                          \
    Result(Stream stream, int* status))                                                            \
  X(stream_wait_event,                                                                             \
    cuStreamWaitEvent,                                                                             \
    "cuStreamWaitEvent",                                                                           \
    3020,                                                                                          \
    true,                                                                                          \
    Result(Stream stream, Event event, unsigned flags))                                            \
  X(stream_write_value32,                                                                          \
    cuStreamWriteValue32,                                                                          \
    "cuStreamWriteValue32_v2",                                                                     \
    11070,                                                                                         \
    false,                                                                                         \
    Result(Stream stream, DevicePointer address, std::uint32_t value, unsigned flags))             \
  X(stream_wait_value32,                                                                           \
    cuStreamWaitValue32,                                                                           \
    "cuStreamWaitValue32_v2",                                                                      \
    11070,                                                                                         \
    false,                                                                                         \
    Result(Stream stream, DevicePointer address, std::uint32_t value, unsigned flags))             \
  X(thread_exchange_capture_mode,                                                                  \
    cuThreadExchangeStreamCaptureMode,                                                             \
    "cuThreadExchangeStreamCaptureMode",                                                           \
    10010,                                                                                         \
    true,                                                                                          \
    Result(int* mode))                                                                             \
  X(event_create,                                                                                  \
    cuEventCreate,                                                                                 \
    "cuEventCreate",                                                                               \
    2000,                                                                                          \
    true,                                                                                          \
    Result(Event* event, unsigned flags))                                                          \
  X(event_destroy, cuEventDestroy, "cuEventDestroy_v2", 4000, true, Result(Event event))           \
  X(event_record, cuEventRecord, "cuEventRecord", 2000, true, Result(Event event, Stream stream))  \
  X(event_query, cuEventQuery, "cuEventQuery", 2000, true, Result(Event event))                    \
  X(event_synchronize, cuEventSynchronize, "cuEventSynchronize", 2000, true, Result(Event event))  \
  X(copy_host_to_device,                                                                           \
    cuMemcpyHtoDAsync,                                                                             \
    "cuMemcpyHtoDAsync_v2",                                                                        \
    3020,                                                                                          \
    true,                                                                                          \
    Result(DevicePointer destination, void const* source, std::size_t nbytes, Stream stream))      \
  X(copy_device_to_host,                                                                           \
    cuMemcpyDtoHAsync,                                                                             \
    "cuMemcpyDtoHAsync_v2",                                                                        \
    3020,                                                                                          \
    true,                                                                                          \
    Result(void* destination, DevicePointer source, std::size_t nbytes, Stream stream))            \
  X(copy_device_to_device,                                                                         \
    cuMemcpyDtoDAsync,                                                                             \
    "cuMemcpyDtoDAsync_v2",                                                                        \
    3020,                                                                                          \
    true,                                                                                          \
    Result(DevicePointer destination, DevicePointer source, std::size_t nbytes, Stream stream))    \
  X(fill_bytes,                                                                                    \
    cuMemsetD8Async,                                                                               \
    "cuMemsetD8Async",                                                                             \
    3020,                                                                                          \
    true,                                                                                          \
    Result(DevicePointer destination, unsigned char value, std::size_t nbytes, Stream stream))     \
  X(memory_allocate,                                                                               \
    cuMemAlloc,                                                                                    \
    "cuMemAlloc_v2",                                                                               \
    3020,                                                                                          \
    true,                                                                                          \
    Result(DevicePointer* address, std::size_t nbytes))                                            \
  X(memory_free, cuMemFree, "cuMemFree_v2", 3020, true, Result(DevicePointer address))             \
  X(host_register,                                                                                 \
    cuMemHostRegister,                                                                             \
    "cuMemHostRegister_v2",                                                                        \
    6050,                                                                                          \
    true,                                                                                          \
    Result(void* pointer, std::size_t nbytes, unsigned flags))                                     \
  X(host_unregister,                                                                               \
    cuMemHostUnregister,                                                                           \
    "cuMemHostUnregister",                                                                         \
    4000,                                                                                          \
    true,                                                                                          \
    Result(void* pointer))                                                                         \
  X(host_get_device_pointer,                                                                       \
    cuMemHostGetDevicePointer,                                                                     \
    "cuMemHostGetDevicePointer_v2",                                                                \
    3020,                                                                                          \
    true,                                                                                          \
    Result(DevicePointer* address, void* pointer, unsigned flags))                                 \
  X(pointer_get_attributes,                                                                        \
    cuPointerGetAttributes,                                                                        \
    "cuPointerGetAttributes",                                                                      \
    7000,                                                                                          \
    true,                                                                                          \
    Result(unsigned count, int* attributes, void** values, DevicePointer pointer))
