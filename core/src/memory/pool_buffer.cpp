// SPDX-License-Identifier: Apache-2.0
#include "memory/pool_buffer.hpp"

#include <algorithm>

namespace datapath {

void* PoolBuffer::data() const noexcept
{ return reinterpret_cast<void*>(static_cast<std::uintptr_t>(place_.range.start)); }

std::uint64_t PoolBuffer::contiguous_span(std::uint64_t offset) const noexcept
{
  if (offset >= place_.nbytes) { return 0; }
  auto const cut = std::ranges::upper_bound(place_.cuts, offset);
  return (cut == place_.cuts.end() ? place_.nbytes : *cut) - offset;
}

void PoolBuffer::record_use(Device& device, dp_stream stream)
{
  pool_->fork_.check("the pool");
  uses_.record(device, stream);
}

void PoolBuffer::last_reference_gone() const noexcept
{
  // In a child the memory is not there, and the pool's mutex may be held by nobody.
  if (pool_->fork_.inherited()) { return; }
  pool_->give_back(place_.range, place_.nbytes, uses_.take());
  delete this;
}

}  // namespace datapath
