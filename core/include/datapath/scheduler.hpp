// SPDX-License-Identifier: Apache-2.0
/// @file
/// Transfers between memory, devices, files and extents, queued by lane.
#pragma once

#include <datapath/device.hpp>
#include <datapath/handle.hpp>
#include <datapath/io.hpp>
#include <datapath/ticket.hpp>

#include <cstdint>
#include <string>

namespace datapath::client {

[[nodiscard]] inline dp_place host_place(void const* pointer) noexcept
{
  dp_place place{};
  place.kind    = DP_HOST;
  place.address = reinterpret_cast<std::uintptr_t>(pointer);
  return place;
}

[[nodiscard]] inline dp_place device_place(std::uint64_t address) noexcept
{
  dp_place place{};
  place.kind    = DP_DEVICE;
  place.address = address;
  return place;
}

[[nodiscard]] inline dp_place file_place(File const& file, std::uint64_t offset) noexcept
{
  dp_place place{};
  place.kind   = DP_FILE;
  place.file   = file.get();
  place.offset = offset;
  return place;
}

[[nodiscard]] inline dp_place extent_place(Extent const& extent, std::uint64_t offset = 0) noexcept
{
  dp_place place{};
  place.kind   = DP_EXTENT;
  place.extent = extent.get();
  place.offset = offset;
  return place;
}

class Scheduler : public Handle<dp_scheduler, dp_scheduler_retain, dp_scheduler_release> {
 public:
  Scheduler() noexcept = default;
  explicit Scheduler(Device const& device, dp_scheduler_options options = {})
    : Handle{create(device, options)}
  {}

  /// Queues the transfer and returns at once.
  [[nodiscard]] Ticket transfer(dp_place const& destination,
                                dp_place const& source,
                                std::uint64_t nbytes,
                                dp_transfer_options options = {}) const
  {
    options.size      = sizeof(options);
    dp_ticket* ticket = nullptr;
    detail::check(dp_transfer(get(), &destination, &source, nbytes, &options, &ticket));
    return Ticket::adopt(ticket);
  }
  [[nodiscard]] dp_stream stream(dp_lane lane) const
  {
    dp_stream stream{};
    detail::check(dp_scheduler_stream(get(), lane, &stream));
    return stream;
  }
  [[nodiscard]] dp_lane_stats stats(dp_lane lane) const
  {
    dp_lane_stats stats{};
    stats.size = sizeof(stats);
    detail::check(dp_scheduler_lane_stats(get(), lane, &stats));
    return stats;
  }
  [[nodiscard]] std::string describe() const
  {
    char* json = nullptr;
    detail::check(dp_scheduler_describe(get(), &json));
    return detail::take_string(json);
  }
  void close() const { detail::check(dp_scheduler_close(get())); }

 private:
  static dp_scheduler* create(Device const& device, dp_scheduler_options options)
  {
    detail::require_abi();
    options.size            = sizeof(options);
    dp_scheduler* scheduler = nullptr;
    detail::check(dp_scheduler_create(device.get(), &options, &scheduler));
    return scheduler;
  }
};

}  // namespace datapath::client
