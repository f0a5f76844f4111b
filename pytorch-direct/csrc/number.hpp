// SPDX-License-Identifier: Apache-2.0
/// @file
/// The number types of tables, with conversions to and from what is computed in, the same to the
/// last bit on host and device.
#pragma once

#include "host_device.hpp"

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace pytorch_direct {

struct Half {
  std::uint16_t bits;
};
struct Bfloat16 {
  std::uint16_t bits;
};
/// `torch.float8_e4m3fn`: no infinities.
struct Float8E4m3 {
  std::uint8_t bits;
};
/// `torch.float8_e5m2`.
struct Float8E5m2 {
  std::uint8_t bits;
};

PD_HOST_DEVICE float float_of_bits(std::uint32_t bits)
{
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

PD_HOST_DEVICE std::uint32_t bits_of_float(float value)
{
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  return std::bit_cast<std::uint32_t>(value);
#endif
}

/// Exact: every half is a float.
PD_HOST_DEVICE float float_of(Half value)
{
#if defined(__CUDA_ARCH__)
  return __half2float(__ushort_as_half(value.bits));
#else
  auto const sign     = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16;
  auto const exponent = (value.bits >> 10) & 0x1FU;
  auto const fraction = value.bits & 0x3FFU;
  if (exponent == 0x1FU) { return float_of_bits(sign | 0x7F800000U | (fraction << 13)); }
  if (exponent != 0) { return float_of_bits(sign | ((exponent + 112U) << 23) | (fraction << 13)); }
  auto const tiny = static_cast<float>(fraction) * 0x1p-24F;
  return sign != 0 ? -tiny : tiny;
#endif
}

PD_HOST_DEVICE float float_of(Bfloat16 value)
{ return float_of_bits(static_cast<std::uint32_t>(value.bits) << 16); }

/// Its five bits of exponent are those of a half.
PD_HOST_DEVICE float float_of(Float8E5m2 value)
{ return float_of(Half{static_cast<std::uint16_t>(value.bits << 8)}); }

PD_HOST_DEVICE float float_of(Float8E4m3 value)
{
  auto const sign     = static_cast<std::uint32_t>(value.bits & 0x80U) << 24;
  auto const exponent = static_cast<std::uint32_t>(value.bits >> 3) & 0xFU;
  auto const fraction = static_cast<std::uint32_t>(value.bits & 0x7U);
  if ((value.bits & 0x7FU) == 0x7FU) { return float_of_bits(sign | 0x7FC00000U); }
  if (exponent != 0) { return float_of_bits(sign | ((exponent + 120U) << 23) | (fraction << 20)); }
  auto const tiny = static_cast<float>(fraction) * 0x1p-9F;
  return sign != 0 ? -tiny : tiny;
}

template <class T>
  requires std::is_arithmetic_v<T>
PD_HOST_DEVICE float float_of(T value)
{ return static_cast<float>(value); }

/// To the nearest, ties to even, as torch rounds.
PD_HOST_DEVICE Bfloat16 bfloat16_of(float value)
{
#if defined(__CUDA_ARCH__)
  return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
#else
  auto const bits = bits_of_float(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) { return {0x7FC0}; }
  return {static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16)};
#endif
}

PD_HOST_DEVICE Half half_of(float value)
{
#if defined(__CUDA_ARCH__)
  return {__half_as_ushort(__float2half_rn(value))};
#else
  auto const bits      = bits_of_float(value);
  auto const sign      = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  auto const magnitude = bits & 0x7FFFFFFFU;
  auto const with_sign = [&](std::uint32_t half) {
    return Half{static_cast<std::uint16_t>(sign | half)};
  };
  if (magnitude > 0x7F800000U) { return with_sign(0x7E00U); }
  if (magnitude >= 0x477FF000U) { return with_sign(0x7C00U); }  // rounds to infinity
  if (magnitude < 0x38800000U) {
    // Below the least normal half the sum rounds at the right bit.
    auto const sum = float_of_bits(magnitude) + 0.5F;
    return with_sign(bits_of_float(sum) - 0x3F000000U);
  }
  return with_sign((magnitude + 0xFFFU + ((magnitude >> 13) & 1U) - 0x38000000U) >> 13);
#endif
}

template <class To>
PD_HOST_DEVICE To number_of(float value)
{
  if constexpr (std::is_same_v<To, Half>) {
    return half_of(value);
  } else if constexpr (std::is_same_v<To, Bfloat16>) {
    return bfloat16_of(value);
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace pytorch_direct
