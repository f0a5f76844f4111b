// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sorts a batch by region of the table, so that each region's address is translated once a batch.
#include "bad_ids_publish.cuh"
#include "cuda_check.cuh"
#include "gather_cuda.hpp"

#include <cub/device/device_radix_sort.cuh>

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>

namespace pytorch_direct {
namespace {

constexpr std::size_t kAlignment = 256;

std::size_t list_bytes(std::int64_t count)
{
  auto const bytes = static_cast<std::size_t>(count) * sizeof(std::uint32_t);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// With null lists it says how much temporary memory the sort needs.
void sort_pairs(void* temporary,
                std::size_t& temporary_bytes,
                cub::DoubleBuffer<std::uint32_t>& keys,
                cub::DoubleBuffer<std::uint32_t>& positions,
                std::int64_t count,
                int low_bit,
                int high_bit,
                cudaStream_t stream)
{
  check_cuda(cub::DeviceRadixSort::SortPairs(temporary,
                                             temporary_bytes,
                                             keys,
                                             positions,
                                             static_cast<std::uint32_t>(count),
                                             low_bit,
                                             high_bit,
                                             stream),
             "sorting a batch by address");
}

__global__ void __launch_bounds__(kBlockThreads)
  key_kernel(GatherArguments const arguments, std::uint32_t* keys, std::uint32_t* positions)
{
  auto const threads = gridDim.x * std::int64_t{kBlockThreads};
  for (auto i = blockIdx.x * std::int64_t{kBlockThreads} + threadIdx.x; i < arguments.count;
       i += threads) {
    auto const row = row_of(arguments, i);
    if (row < 0) { report_bad(arguments, i); }
    // All ones is no row: there are fewer than 2^32 of them.
    keys[i]      = static_cast<std::uint32_t>(row);
    positions[i] = static_cast<std::uint32_t>(i);
  }
  publish_bad_ids(arguments);
}

}  // namespace

std::size_t order_workspace_bytes(int device, std::int64_t count)
{
  DeviceGuard const guard{device};
  std::size_t temporary = 0;
  cub::DoubleBuffer<std::uint32_t> keys;
  cub::DoubleBuffer<std::uint32_t> positions;
  sort_pairs(nullptr, temporary, keys, positions, count, 0, 32, nullptr);
  return 4 * list_bytes(count) + temporary;
}

void order_by_address(GatherArguments& arguments,
                      Launch const& launch,
                      std::int64_t region_bytes,
                      bool merge,
                      std::byte* workspace,
                      std::size_t workspace_bytes)
{
  constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
  if (arguments.rows > kMost || arguments.count > kMost) {
    throw std::invalid_argument("order_by_address: more than 2^32 - 1 rows or ids");
  }
  auto const high_bit = static_cast<int>(
    std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(arguments.rows - 1, 0))));
  int low_bit = 0;
  while (!merge && low_bit < high_bit && (arguments.stride << (low_bit + 1)) <= region_bytes) {
    ++low_bit;
  }
  // A table within one region needs no order.
  if (low_bit >= high_bit) { return; }

  DeviceGuard const guard{launch.device};
  auto const bytes = list_bytes(arguments.count);
  if (workspace_bytes < 4 * bytes) {
    throw std::invalid_argument("order_by_address: workspace too small");
  }
  auto const list = [&](std::size_t i) {
    return reinterpret_cast<std::uint32_t*>(workspace + i * bytes);
  };
  cub::DoubleBuffer<std::uint32_t> keys{list(0), list(1)};
  cub::DoubleBuffer<std::uint32_t> positions{list(2), list(3)};
  auto* const stream = reinterpret_cast<cudaStream_t>(launch.stream);
  auto const blocks  = launch.blocks_of((arguments.count + kBlockThreads - 1) / kBlockThreads);
  key_kernel<<<blocks, kBlockThreads, 0, stream>>>(arguments, list(0), list(2));
  check_cuda(cudaGetLastError(), "launching the key kernel");
  auto temporary_bytes = workspace_bytes - 4 * bytes;
  sort_pairs(workspace + 4 * bytes,
             temporary_bytes,
             keys,
             positions,
             arguments.count,
             low_bit,
             high_bit,
             stream);

  arguments.ids       = keys.Current();
  arguments.id_kind   = IdKind::key;
  arguments.positions = positions.Current();
  arguments.wrap      = false;
  arguments.bad       = {};
  arguments.merge     = merge;
}

}  // namespace pytorch_direct
