// SPDX-License-Identifier: Apache-2.0
/// @file
/// Pinned memory: pools, and memory of the caller registered in place.
#pragma once

#include <datapath/device.hpp>
#include <datapath/handle.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace datapath::client {

/// A range of host memory that work may use, at a device address too where there is a device.
class Buffer : public Handle<dp_buffer, dp_buffer_retain, dp_buffer_release> {
 public:
  Buffer() noexcept = default;
  /// Takes over one reference.
  [[nodiscard]] static Buffer adopt(dp_buffer* raw) noexcept { return Buffer{raw}; }

  [[nodiscard]] dp_buffer_info info() const
  {
    dp_buffer_info info{};
    info.size = sizeof(info);
    detail::check(dp_buffer_get_info(get(), &info));
    return info;
  }
  [[nodiscard]] std::span<std::byte> bytes() const
  {
    auto const known = info();
    return {static_cast<std::byte*>(known.pointer), static_cast<std::size_t>(known.nbytes)};
  }
  /// The memory is reused, or its owner released, only after the work that is on the stream now.
  void record_use(Device const& device, dp_stream stream) const
  { detail::check(dp_buffer_record_use(get(), device.get(), stream)); }

 private:
  using Handle::Handle;
};

/// One reserved address range, backed and registered in pieces.
class Pool : public Handle<dp_pool, dp_pool_retain, dp_pool_release> {
 public:
  Pool() noexcept = default;
  explicit Pool(dp_pool_options options) : Handle{create(options)} {}

  [[nodiscard]] Buffer allocate(std::uint64_t nbytes, std::uint64_t alignment = 0) const
  {
    dp_buffer* buffer = nullptr;
    detail::check(dp_pool_allocate(get(), nbytes, alignment, &buffer));
    return Buffer::adopt(buffer);
  }
  void reserve(std::uint64_t nbytes) const { detail::check(dp_pool_reserve(get(), nbytes)); }
  /// Gives back backing that no buffer uses; returns the bytes.
  [[nodiscard]] std::uint64_t trim() const
  {
    std::uint64_t released = 0;
    detail::check(dp_pool_trim(get(), &released));
    return released;
  }
  [[nodiscard]] dp_pool_stats stats() const
  {
    dp_pool_stats stats{};
    stats.size = sizeof(stats);
    detail::check(dp_pool_get_stats(get(), &stats));
    return stats;
  }
  void close() const { detail::check(dp_pool_close(get())); }

 private:
  static dp_pool* create(dp_pool_options options)
  {
    detail::require_abi();
    options.size  = sizeof(options);
    dp_pool* pool = nullptr;
    detail::check(dp_pool_create(&options, &pool));
    return pool;
  }
};

/// Pins memory that the caller has, in place; `owner` keeps it until no work can touch it.
[[nodiscard]] inline Buffer register_memory(void* pointer,
                                            std::uint64_t nbytes,
                                            dp_register_options options,
                                            dp_owner owner)
{
  detail::require_abi();
  options.size      = sizeof(options);
  dp_buffer* buffer = nullptr;
  detail::check(dp_register(pointer, nbytes, &options, owner, &buffer));
  return Buffer::adopt(buffer);
}

}  // namespace datapath::client
