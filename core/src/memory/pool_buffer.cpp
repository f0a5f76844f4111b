// SPDX-License-Identifier: Apache-2.0
#include "memory/pool_buffer.hpp"

namespace datapath {

void* PoolBuffer::data() const noexcept
{ return reinterpret_cast<void*>(static_cast<std::uintptr_t>(place_.range.start)); }

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
