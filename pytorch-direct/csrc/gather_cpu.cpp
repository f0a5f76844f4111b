// SPDX-License-Identifier: Apache-2.0
#include "gather_cpu.hpp"

#include "thread_pool.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

namespace pytorch_direct {
namespace {

constexpr std::int64_t kNone       = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kChunkBytes = 128 << 10;
// Rows fetched ahead; more than the line fill buffers of a core can hold gains nothing.
constexpr std::int64_t kAhead      = 8;
constexpr std::int64_t kAheadBytes = 256;

template <std::size_t Bytes>
struct FixedRun {
  void operator()(std::byte* to, std::byte const* from) const { std::memcpy(to, from, Bytes); }
};

struct AnyRun {
  std::size_t bytes;
  void operator()(std::byte* to, std::byte const* from) const { std::memcpy(to, from, bytes); }
};

/// Calls `body` with the copy of one run: of a size known to the compiler where that is common.
template <class Body>
void with_run(std::int64_t run_bytes, Body&& body)
{
  switch (run_bytes) {
    case 1:
      return body(FixedRun<1>{});
    case 2:
      return body(FixedRun<2>{});
    case 4:
      return body(FixedRun<4>{});
    case 8:
      return body(FixedRun<8>{});
    case 16:
      return body(FixedRun<16>{});
    case 32:
      return body(FixedRun<32>{});
    case 64:
      return body(FixedRun<64>{});
    case 128:
      return body(FixedRun<128>{});
    default:
      return body(AnyRun{static_cast<std::size_t>(run_bytes)});
  }
}

/// Copy the runs of a row that is not contiguous.
template <class Run>
void copy_runs(RowLayout const& row,
               std::size_t dimension,
               std::byte const* from,
               std::byte*& to,
               Run const& run)
{
  auto const [size, stride] = row.outer[dimension];
  bool const innermost      = dimension + 1 == row.outer.size();
  for (std::int64_t i = 0; i < size; ++i, from += stride) {
    if (innermost) {
      run(to, from);
      to += row.run_bytes;
    } else {
      copy_runs(row, dimension + 1, from, to, run);
    }
  }
}

void prefetch_row(std::byte const* row, std::int64_t bytes)
{
  for (std::int64_t i = 0; i < std::min(bytes, kAheadBytes); i += 64) {
    __builtin_prefetch(row + i);
  }
}

template <class Id, class Run>
std::int64_t gather_range(CpuTable const& table,
                          CpuIds const& ids,
                          std::int64_t begin,
                          std::int64_t end,
                          std::byte* out,
                          Run const& run)
{
  auto const* const list = static_cast<Id const*>(ids.data);
  auto const row_of      = [&](std::int64_t i) {
    auto const id = std::int64_t{__atomic_load_n(list + i, __ATOMIC_RELAXED)};
    return ids.wrap && id < 0 ? id + table.rows : id;
  };
  auto const in_range = [&](std::int64_t row) { return row >= 0 && row < table.rows; };
  auto first_bad      = kNone;
  for (auto i = begin; i < end; ++i) {
    if (auto const next = i + kAhead < end ? row_of(i + kAhead) : -1; in_range(next)) {
      prefetch_row(table.base + next * table.stride, table.row.row_bytes);
    }
    auto const row = row_of(i);
    if (!in_range(row)) {
      first_bad = std::min(first_bad, i);
      continue;
    }
    auto const* const from = table.base + row * table.stride;
    auto* to               = out + i * table.row.row_bytes;
    if (table.row.is_contiguous()) {
      run(to, from);
    } else {
      copy_runs(table.row, 0, from, to, run);
    }
  }
  return first_bad;
}

}  // namespace

std::int64_t gather_cpu(CpuTable const& table, CpuIds const& ids, std::byte* out, int threads)
{
  std::atomic<std::int64_t> first_bad{kNone};
  auto const id_bytes  = ids.is_64_bit ? 8 : 4;
  auto const ids_chunk = std::max<std::int64_t>(1, kChunkBytes / (table.row.row_bytes + id_bytes));
  with_run(table.row.run_bytes, [&](auto const& run) {
    parallel_chunks((ids.count + ids_chunk - 1) / ids_chunk, threads, [&](std::int64_t chunk) {
      auto const begin = chunk * ids_chunk;
      auto const end   = std::min(ids.count, begin + ids_chunk);
      auto const bad = ids.is_64_bit ? gather_range<std::int64_t>(table, ids, begin, end, out, run)
                                     : gather_range<std::int32_t>(table, ids, begin, end, out, run);
      auto known     = first_bad.load(std::memory_order_relaxed);
      while (bad < known && !first_bad.compare_exchange_weak(known, bad)) {}
    });
  });
  auto const bad = first_bad.load();
  return bad == kNone ? -1 : bad;
}

}  // namespace pytorch_direct
