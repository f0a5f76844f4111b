// SPDX-License-Identifier: Apache-2.0
#include "streams/host_table.hpp"

#include <iterator>
#include <mutex>

namespace datapath {

bool HostTable::insert(void const* pointer, std::size_t nbytes, std::uint64_t device_address)
{
  auto const start = reinterpret_cast<std::uintptr_t>(pointer);
  auto const end   = start + nbytes;
  std::unique_lock const lock{mutex_};
  auto const after = ranges_.lower_bound(end);
  if (after != ranges_.begin() && std::prev(after)->second.end > start) { return false; }
  ranges_.emplace_hint(after, start, Registered{end, device_address});
  return true;
}

void HostTable::remove(void const* pointer) noexcept
{
  std::unique_lock const lock{mutex_};
  ranges_.erase(reinterpret_cast<std::uintptr_t>(pointer));
}

HostTable::Entry HostTable::find(void const* pointer) const noexcept
{
  auto const address = reinterpret_cast<std::uintptr_t>(pointer);
  std::shared_lock const lock{mutex_};
  auto const after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) { return {}; }
  auto const& [start, found] = *std::prev(after);
  if (address >= found.end) { return {}; }
  return {{start, found.end - start}, found.device_address + (address - start)};
}

std::size_t HostTable::size() const noexcept
{
  std::shared_lock const lock{mutex_};
  return ranges_.size();
}

}  // namespace datapath
