// SPDX-License-Identifier: Apache-2.0
/// @file
/// Random numbers as a function of (seed, counter), the same on every thread, machine and device.
///
/// Philox 4x32 with 10 rounds: J. Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3",
/// SC 2011, sections 3 and 4.
#pragma once

#include "host_device.hpp"

#include <cstdint>

namespace pytorch_direct {

struct Random128 {
  std::uint32_t word[4];
};

PD_HOST_DEVICE constexpr Random128 philox(std::uint64_t seed,
                                          std::uint64_t counter_low,
                                          std::uint64_t counter_high)
{
  Random128 x{{static_cast<std::uint32_t>(counter_low),
               static_cast<std::uint32_t>(counter_low >> 32),
               static_cast<std::uint32_t>(counter_high),
               static_cast<std::uint32_t>(counter_high >> 32)}};
  auto key0 = static_cast<std::uint32_t>(seed);
  auto key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    std::uint64_t const a = std::uint64_t{0xD2511F53U} * x.word[0];
    std::uint64_t const b = std::uint64_t{0xCD9E8D57U} * x.word[2];
    x                     = Random128{{static_cast<std::uint32_t>(b >> 32) ^ x.word[1] ^ key0,
                                       static_cast<std::uint32_t>(b),
                                       static_cast<std::uint32_t>(a >> 32) ^ x.word[3] ^ key1,
                                       static_cast<std::uint32_t>(a)}};
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return x;
}

// The known answer of the authors' test vectors for a key and a counter of zeros.
static_assert(philox(0, 0, 0).word[0] == 0x6627E8D5U && philox(0, 0, 0).word[3] == 0x9B00DBD8U);

}  // namespace pytorch_direct
