// SPDX-License-Identifier: Apache-2.0
#include "streams/host_table.hpp"

#include "memory/pages.hpp"

#include <iterator>
#include <mutex>

namespace datapath {

bool HostTable::insert(void const* pointer, std::size_t nbytes, std::uint64_t device_address)
{
  auto const address = reinterpret_cast<std::uintptr_t>(pointer);
  auto const start   = page_floor(address);
  auto const end     = page_ceil(address + nbytes);
  std::unique_lock const lock{mutex_};
  auto const after = ranges_.lower_bound(end);
  if (after != ranges_.begin() && std::prev(after)->second.end > start) { return false; }
  ranges_.emplace_hint(after, start, Registered{end, address, device_address});
  return true;
}

void HostTable::remove(void const* pointer) noexcept
{
  auto const address = reinterpret_cast<std::uintptr_t>(pointer);
  std::unique_lock const lock{mutex_};
  auto const found = ranges_.find(page_floor(address));
  if (found != ranges_.end() && found->second.pointer == address) { ranges_.erase(found); }
}

HostTable::Entry HostTable::find(void const* pointer) const noexcept
{
  auto const address = reinterpret_cast<std::uintptr_t>(pointer);
  std::shared_lock const lock{mutex_};
  auto const after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) { return {}; }
  auto const& [start, found] = *std::prev(after);
  if (address >= found.end) { return {}; }
  return {{start, found.end - start}, found.device_address + address - found.pointer};
}

std::size_t HostTable::size() const noexcept
{
  std::shared_lock const lock{mutex_};
  return ranges_.size();
}

}  // namespace datapath
