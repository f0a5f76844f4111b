// SPDX-License-Identifier: Apache-2.0
/// @file
/// Marks what is compiled for both processors, so that one text is the kernel and its twin.
#pragma once

#if defined(__CUDACC__)
#define PD_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define PD_HOST_DEVICE inline
#endif

#if defined(__CUDA_ARCH__)
#define PD_UNROLL _Pragma("unroll")
#else
#define PD_UNROLL
#endif
