// SPDX-License-Identifier: Apache-2.0
#include "gather_cast.hpp"

#include "gather_cast_body.hpp"

namespace pytorch_direct {

int cast_bytes(Cast type)
{
  switch (type) {
    case Cast::float64:
      return 8;
    case Cast::float32:
      return 4;
    case Cast::float16:
    case Cast::bfloat16:
      return 2;
    default:
      return 1;
  }
}

int cast_load_bytes(GatherArguments const& arguments, Conversion const& conversion)
{
  auto const bytes = cast_bytes(conversion.from);
  auto const all   = reinterpret_cast<std::uintptr_t>(arguments.table) |
                     static_cast<std::uint64_t>(arguments.stride) |
                     static_cast<std::uint64_t>(conversion.elements * bytes);
  return all % 16 == 0 ? 16 : bytes;
}

int cast_lane_bits(Conversion const& conversion, int load_bytes)
{
  auto const loads = conversion.elements * cast_bytes(conversion.from) / load_bytes;
  int bits         = 0;
  while (bits < 5 && (std::int64_t{1} << bits) < loads) { ++bits; }
  return bits;
}

void gather_cast_emulated(GatherArguments const& arguments,
                          Conversion const& conversion,
                          std::int64_t threads)
{
  auto const load_bytes = cast_load_bytes(arguments, conversion);
  auto const lane_bits  = cast_lane_bits(conversion, load_bytes);
  with_conversion(conversion, load_bytes, [&]<class From, class To, int LoadBytes>() {
    for (std::int64_t thread = 0; thread < threads; ++thread) {
      gather_cast_rows<From, To, LoadBytes>(arguments, conversion, lane_bits, thread, threads);
    }
  });
}

}  // namespace pytorch_direct
