// SPDX-License-Identifier: Apache-2.0
#include "streams/device.hpp"

#include "shim/cuda.hpp"
#include "streams/cuda_device.hpp"
#include "streams/null_device.hpp"
#include "support/error.hpp"
#include "support/per_process.hpp"

#include <charconv>
#include <map>
#include <mutex>

namespace datapath {

namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, Device*, std::less<>> devices;  ///< Weak.
};

PerProcess<Registry> open_devices;

Ref<Device> open_as(std::string const& name, int ordinal)
{
  auto& table = open_devices.get();
  std::lock_guard const lock{table.mutex};
  auto& slot = table.devices[name];
  if (slot != nullptr && slot->retain_if_alive()) { return Ref<Device>::adopt(slot); }
  Ref<Device> device;
  try {
    device = ordinal < 0 ? Ref<Device>{make_ref<NullDevice>()}
                         : Ref<Device>{make_ref<CudaDevice>(ordinal)};
  } catch (...) {
    // A dying device may still have to find its own entry, so only an empty one goes.
    if (slot == nullptr) { table.devices.erase(name); }
    throw;
  }
  slot = device.get();
  return device;
}

}  // namespace

Ref<Device> Device::open(std::string_view name)
{
  if (name == "null") { return open_as("null", -1); }
  if (name == "cuda") {
    auto const ordinal = cuda::current_ordinal();
    return open_as("cuda:" + std::to_string(ordinal), ordinal);
  }
  constexpr std::string_view prefix = "cuda:";
  if (name.starts_with(prefix)) {
    auto const digits = name.substr(prefix.size());
    int ordinal       = -1;
    auto const [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
    if (error == std::errc{} && end == digits.data() + digits.size() && ordinal >= 0) {
      return open_as("cuda:" + std::to_string(ordinal), ordinal);
    }
  }
  fail(DP_ERR_INVALID,
       "no device is called '" + std::string{name} + "'; use \"cuda\", \"cuda:N\" or \"null\"");
}

Ref<Device> Device::open_default(std::string* reason)
{
  try {
    return open("cuda");
  } catch (Error const& error) {
    if (reason != nullptr) { *reason = error.info().message; }
    return nullptr;
  }
}

std::vector<std::string> Device::open_names()
{
  auto& table = open_devices.get();
  std::lock_guard const lock{table.mutex};
  std::vector<std::string> names;
  for (auto const& [name, device] : table.devices) { names.push_back(name); }
  return names;
}

void Device::last_reference_gone() const noexcept
{
  {
    auto& table = open_devices.get();
    std::lock_guard const lock{table.mutex};
    for (auto entry = table.devices.begin(); entry != table.devices.end(); ++entry) {
      if (entry->second == this) {
        table.devices.erase(entry);
        break;
      }
    }
  }
  delete this;
}

}  // namespace datapath
