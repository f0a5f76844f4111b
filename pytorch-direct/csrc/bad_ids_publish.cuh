// SPDX-License-Identifier: Apache-2.0
/// @file
/// The end of every kernel that checks ids: the last block tells the host of the first bad one.
#pragma once

#include "gather_body.hpp"

namespace pytorch_direct {

/// The id as the caller gave it, before any wrapping.
__device__ inline long long given_id(GatherArguments const& a, std::int64_t position)
{
  if (a.id_kind == IdKind::int32) { return static_cast<std::int32_t const*>(a.ids)[position]; }
  return static_cast<std::int64_t const*>(a.ids)[position];
}

/// To be called by all threads of all blocks, once, when they have no more ids to check.
__device__ inline void publish_bad_ids(GatherArguments const& a)
{
  auto const& bad = a.bad;
  if (bad.slot == nullptr) { return; }
  __syncthreads();
  if (threadIdx.x != 0) { return; }
  __threadfence();
  // Wraps to 0 with the last block, so that the slot is ready for the next kernel.
  if (atomicInc(&bad.slot->arrived, gridDim.x - 1) != gridDim.x - 1) { return; }
  __threadfence();
  auto const worst = atomicExch(&bad.slot->worst, 0ULL);
  if (worst == 0) { return; }
  volatile BadIdRecord* const record = bad.record;
  // An earlier report that no one has read yet is the one to keep.
  if (record->full == 0) {
    auto const position = static_cast<std::int64_t>(~worst);
    record->sequence    = bad.sequence;
    record->position    = position;
    record->id          = given_id(a, position);
    record->rows        = a.rows;
    record->count       = a.count;
    record->wrap        = a.wrap ? 1 : 0;
    record->scatter     = a.scatter ? 1 : 0;
    __threadfence_system();
    record->full = 1;
  }
  __threadfence_system();
  *static_cast<volatile unsigned long long*>(bad.pending) = 1;
}

}  // namespace pytorch_direct
