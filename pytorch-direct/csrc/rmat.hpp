// SPDX-License-Identifier: Apache-2.0
/// @file
/// R-MAT graphs: D. Chakrabarti, Y. Zhan, C. Faloutsos, "R-MAT: A Recursive Model for Graph
/// Mining", SDM 2004, section 3.
#pragma once

#include <cstdint>

namespace pytorch_direct {

/// Probabilities of the quadrants; the fourth is what the three leave.
struct RmatOptions {
  double a;
  double b;
  double c;
  bool scramble;  ///< Give nodes random names, so that a low id does not mean a high degree.
};

/// Write edges [first, first + count) of the graph of `nodes` nodes: sources and destinations.
/// An edge depends on (seed, its number) only. The caller has checked its arguments.
void rmat_edges(std::int64_t nodes,
                std::int64_t first,
                std::int64_t count,
                std::uint64_t seed,
                RmatOptions const& options,
                std::int64_t* sources,
                std::int64_t* destinations,
                int threads);

/// Write features [first, first + count) of one long row-major matrix: uniform in [-1, 1), each a
/// multiple of 2^-23, a function of (seed, its number).
void uniform_features(
  std::int64_t first, std::int64_t count, std::uint64_t seed, float* out, int threads);

}  // namespace pytorch_direct
