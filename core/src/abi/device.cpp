// SPDX-License-Identifier: Apache-2.0
/// @file
/// dp_device_*, dp_stream_*, dp_null_* and dp_pointer_device.
#include "streams/device.hpp"

#include "abi/handles.hpp"
#include "shim/cuda.hpp"
#include "streams/null_device.hpp"

#include <cstdio>

using namespace datapath;

namespace {

NullDevice& null_device(dp_device* handle, char const* what)
{
  auto* const device = dynamic_cast<NullDevice*>(&from_handle(handle));
  if (device == nullptr) {
    fail(DP_ERR_UNSUPPORTED, std::string{what} + " is for the null device only; open \"null\"");
  }
  return *device;
}

}  // namespace

dp_status dp_device_open(char const* name, dp_device** out)
{
  return guard([&] {
    auto& place = result_place(out, "the device");
    expects(name != nullptr, "the device's name is NULL");
    place = to_handle<dp_device>(Device::open(name));
  });
}

void dp_device_retain(dp_device* device)
{ retain_handle(device); }
void dp_device_release(dp_device* device)
{ release_handle(device); }

dp_status dp_device_get_info(dp_device* device, dp_device_info* out)
{
  return guard([&] {
    auto& source = from_handle(device);
    dp_device_info info{};
    info.is_cuda    = source.is_cuda() ? 1 : 0;
    info.ordinal    = source.ordinal();
    info.numa_node  = source.numa_node();
    auto const name = source.name();
    (void)std::snprintf(
      info.name, sizeof info.name, "%.*s", static_cast<int>(name.size()), name.data());
    write_info(out, info);
  });
}

dp_status dp_stream_create(dp_device* device, int32_t priority, dp_stream* out)
{
  return guard([&] {
    auto& place = result_place(out, "the stream");
    place       = from_handle(device).create_stream(priority);
  });
}

dp_status dp_stream_synchronize(dp_device* device, dp_stream stream)
{
  return guard([&] { from_handle(device).synchronize(stream); });
}

dp_status dp_stream_destroy(dp_device* device, dp_stream stream)
{
  return guard([&] { from_handle(device).destroy_stream(stream); });
}

dp_status dp_stream_is_capturing(dp_device* device, dp_stream stream, int32_t* out)
{
  return guard([&] {
    auto& place = result_place(out, "the answer");
    place       = from_handle(device).is_capturing(stream) ? 1 : 0;
  });
}

dp_status dp_null_capture(dp_device* device, dp_stream stream, int32_t begin)
{
  return guard([&] {
    auto& target = null_device(device, "dp_null_capture");
    begin != 0 ? target.begin_capture(stream) : target.end_capture(stream);
  });
}

dp_status dp_null_set_copy_delay(dp_device* device, uint64_t nanoseconds)
{
  return guard([&] { null_device(device, "dp_null_set_copy_delay").set_copy_delay(nanoseconds); });
}

dp_status dp_device_allocate(dp_device* device, uint64_t nbytes, uint64_t* address)
{
  return guard([&] {
    auto& place = result_place(address, "the address");
    place       = from_handle(device).allocate(nbytes);
  });
}

dp_status dp_device_free(dp_device* device, uint64_t address)
{
  return guard([&] { from_handle(device).free(address); });
}

dp_status dp_pointer_device(void const* pointer, int32_t* ordinal)
{
  return guard([&] {
    auto& place = result_place(ordinal, "the ordinal");
    place       = cuda::pointer_ordinal(pointer);
  });
}
