// SPDX-License-Identifier: Apache-2.0
#include "rmat.hpp"

#include "counter_rng.hpp"
#include "thread_pool.hpp"

#include <algorithm>
#include <cmath>

namespace pytorch_direct {
namespace {

// What the high half of the counter starts with, so that no two uses of one seed share numbers.
constexpr std::uint64_t kEdges    = std::uint64_t{1} << 56;
constexpr std::uint64_t kNames    = std::uint64_t{2} << 56;
constexpr std::uint64_t kFeatures = std::uint64_t{3} << 56;

constexpr std::int64_t kChunk = 1 << 14;

std::uint64_t threshold(double probability)
{
  return static_cast<std::uint64_t>(std::llround(std::clamp(probability, 0.0, 1.0) * 4294967296.0));
}

/// One step narrows each side to a half; where a range is odd, its lower half is larger by one.
struct Range {
  std::int64_t low;
  std::int64_t size;

  void narrow(bool upper)
  {
    auto const half = size - size / 2;
    // A single node has no upper half.
    if (upper && size > 1) {
      low += half;
      size /= 2;
    } else {
      size = half;
    }
  }
};

/// A permutation of [0, nodes): a Feistel network on the next even number of bits, walked until the
/// result is a node.
class Names {
 public:
  Names(std::int64_t nodes, std::uint64_t seed)
    : nodes_{static_cast<std::uint64_t>(nodes)}, seed_{seed}
  {
    while ((std::uint64_t{1} << (2 * half_bits_)) < nodes_) { ++half_bits_; }
  }

  [[nodiscard]] std::int64_t of(std::int64_t node) const
  {
    auto name = static_cast<std::uint64_t>(node);
    do {
      name = permute(name);
    } while (name >= nodes_);
    return static_cast<std::int64_t>(name);
  }

 private:
  [[nodiscard]] std::uint64_t permute(std::uint64_t value) const
  {
    auto const mask = (std::uint64_t{1} << half_bits_) - 1;
    auto left       = value >> half_bits_;
    auto right      = value & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      auto const mixed = philox(seed_, right, kNames | round).word[0];
      auto const next  = left ^ (mixed & mask);
      left             = right;
      right            = next;
    }
    return left << half_bits_ | right;
  }

  std::uint64_t nodes_;
  std::uint64_t seed_;
  int half_bits_ = 1;
};

}  // namespace

void rmat_edges(std::int64_t nodes,
                std::int64_t first,
                std::int64_t count,
                std::uint64_t seed,
                RmatOptions const& options,
                std::int64_t* sources,
                std::int64_t* destinations,
                int threads)
{
  auto const a   = threshold(options.a);
  auto const ab  = threshold(options.a + options.b);
  auto const abc = threshold(options.a + options.b + options.c);
  Names const names{nodes, seed};
  auto const edge = [&](std::int64_t i) {
    Range source{0, nodes};
    Range destination{0, nodes};
    Random128 random{};
    for (unsigned level = 0; source.size > 1 || destination.size > 1; ++level) {
      if (level % 4 == 0) {
        random = philox(seed, static_cast<std::uint64_t>(first + i), kEdges | level);
      }
      auto const draw = random.word[level % 4];
      source.narrow(draw >= ab);
      destination.narrow((draw >= a && draw < ab) || draw >= abc);
    }
    sources[i]      = options.scramble ? names.of(source.low) : source.low;
    destinations[i] = options.scramble ? names.of(destination.low) : destination.low;
  };
  parallel_chunks((count + kChunk - 1) / kChunk, threads, [&](std::int64_t chunk) {
    auto const end = std::min(count, (chunk + 1) * kChunk);
    for (auto i = chunk * kChunk; i < end; ++i) { edge(i); }
  });
}

void uniform_features(
  std::int64_t first, std::int64_t count, std::uint64_t seed, float* out, int threads)
{
  parallel_chunks((count + kChunk - 1) / kChunk, threads, [&](std::int64_t chunk) {
    auto const end = std::min(count, (chunk + 1) * kChunk);
    Random128 random{};
    for (auto i = chunk * kChunk; i < end; ++i) {
      auto const number = static_cast<std::uint64_t>(first + i);
      if (number % 4 == 0 || i == chunk * kChunk) { random = philox(seed, number / 4, kFeatures); }
      auto const bits = static_cast<std::int32_t>(random.word[number % 4]) >> 8;
      out[i]          = static_cast<float>(bits) * 0x1p-23F;
    }
  });
}

}  // namespace pytorch_direct
