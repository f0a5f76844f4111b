// SPDX-License-Identifier: Apache-2.0
/// @file
/// Devices: CUDA's, and the null device of host memory and worker threads.
#pragma once

#include <datapath/handle.hpp>

#include <cstdint>
#include <string>

namespace datapath::client {

class Device : public Handle<dp_device, dp_device_retain, dp_device_release> {
 public:
  Device() noexcept = default;
  /// "cuda", "cuda:1" or "null".
  explicit Device(std::string const& name) : Handle{open(name)} {}

  [[nodiscard]] dp_device_info info() const
  {
    dp_device_info info{};
    info.size = sizeof(info);
    detail::check(dp_device_get_info(get(), &info));
    return info;
  }
  [[nodiscard]] bool is_cuda() const { return info().is_cuda != 0; }

  [[nodiscard]] dp_stream create_stream(int priority = 0) const
  {
    dp_stream stream{};
    detail::check(dp_stream_create(get(), priority, &stream));
    return stream;
  }
  void synchronize(dp_stream stream) const { detail::check(dp_stream_synchronize(get(), stream)); }
  void destroy_stream(dp_stream stream) const { detail::check(dp_stream_destroy(get(), stream)); }
  [[nodiscard]] bool is_capturing(dp_stream stream) const
  {
    std::int32_t capturing = 0;
    detail::check(dp_stream_is_capturing(get(), stream, &capturing));
    return capturing != 0;
  }

  [[nodiscard]] std::uint64_t allocate(std::uint64_t nbytes) const
  {
    std::uint64_t address = 0;
    detail::check(dp_device_allocate(get(), nbytes, &address));
    return address;
  }
  void free(std::uint64_t address) const { detail::check(dp_device_free(get(), address)); }

 private:
  static dp_device* open(std::string const& name)
  {
    detail::require_abi();
    dp_device* device = nullptr;
    detail::check(dp_device_open(name.c_str(), &device));
    return device;
  }
};

}  // namespace datapath::client
