// SPDX-License-Identifier: Apache-2.0
/// @file
/// Disk I/O: engines, files, volumes and their extents.
#pragma once

#include <datapath/handle.hpp>
#include <datapath/ticket.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace datapath::client {

class File : public Handle<dp_file, dp_file_retain, dp_file_release> {
 public:
  File() noexcept = default;
  /// Takes over one reference.
  [[nodiscard]] static File adopt(dp_file* raw) noexcept { return File{raw}; }

  /// One ticket for all requests. `owner` keeps their memory until nothing can touch it.
  [[nodiscard]] Ticket read(std::span<dp_io_request const> requests, dp_owner owner = {}) const
  {
    dp_ticket* ticket = nullptr;
    detail::check(dp_file_read(get(), requests.data(), requests.size(), owner, &ticket));
    return Ticket::adopt(ticket);
  }
  [[nodiscard]] Ticket write(std::span<dp_io_request const> requests, dp_owner owner = {}) const
  {
    dp_ticket* ticket = nullptr;
    detail::check(dp_file_write(get(), requests.data(), requests.size(), owner, &ticket));
    return Ticket::adopt(ticket);
  }
  [[nodiscard]] std::uint64_t size() const
  {
    std::uint64_t nbytes = 0;
    detail::check(dp_file_size(get(), &nbytes));
    return nbytes;
  }
  void truncate(std::uint64_t nbytes) const { detail::check(dp_file_truncate(get(), nbytes)); }
  void sync() const { detail::check(dp_file_sync(get())); }
  void close() const { detail::check(dp_file_close(get())); }

 private:
  using Handle::Handle;
};

class Engine : public Handle<dp_engine, dp_engine_retain, dp_engine_release> {
 public:
  Engine() noexcept = default;
  explicit Engine(dp_engine_options options) : Handle{create(options)} {}

  /// Modes "r", "r+", "w", "w+".
  [[nodiscard]] File open(std::string const& path, std::string const& mode) const
  {
    dp_file* file = nullptr;
    detail::check(dp_engine_open(get(), path.c_str(), mode.c_str(), &file));
    return File::adopt(file);
  }
  [[nodiscard]] std::string describe() const
  {
    char* json = nullptr;
    detail::check(dp_engine_describe(get(), &json));
    return detail::take_string(json);
  }
  void close() const { detail::check(dp_engine_close(get())); }

 private:
  static dp_engine* create(dp_engine_options options)
  {
    detail::require_abi();
    options.size      = sizeof(options);
    dp_engine* engine = nullptr;
    detail::check(dp_engine_create(&options, &engine));
    return engine;
  }
};

/// A range of a volume; the last reference gives the bytes back.
class Extent : public Handle<dp_extent, dp_extent_retain, dp_extent_release> {
 public:
  Extent() noexcept = default;
  /// Takes over one reference.
  [[nodiscard]] static Extent adopt(dp_extent* raw) noexcept { return Extent{raw}; }

  /// Offsets count from the extent's start.
  [[nodiscard]] Ticket read(std::span<dp_io_request const> requests, dp_owner owner = {}) const
  {
    dp_ticket* ticket = nullptr;
    detail::check(dp_extent_read(get(), requests.data(), requests.size(), owner, &ticket));
    return Ticket::adopt(ticket);
  }
  [[nodiscard]] Ticket write(std::span<dp_io_request const> requests, dp_owner owner = {}) const
  {
    dp_ticket* ticket = nullptr;
    detail::check(dp_extent_write(get(), requests.data(), requests.size(), owner, &ticket));
    return Ticket::adopt(ticket);
  }
  [[nodiscard]] std::uint64_t size() const
  {
    std::uint64_t nbytes = 0;
    detail::check(dp_extent_size(get(), &nbytes));
    return nbytes;
  }
  void free() const { detail::check(dp_extent_free(get())); }

 private:
  using Handle::Handle;
};

class Volume : public Handle<dp_volume, dp_volume_retain, dp_volume_release> {
 public:
  Volume() noexcept = default;
  Volume(std::vector<std::string> const& directories, dp_volume_options options)
    : Handle{create(directories, options)}
  {}

  [[nodiscard]] Extent allocate(std::uint64_t nbytes) const
  {
    dp_extent* extent = nullptr;
    detail::check(dp_volume_allocate(get(), nbytes, &extent));
    return Extent::adopt(extent);
  }
  [[nodiscard]] dp_volume_stats stats() const
  {
    dp_volume_stats stats{};
    stats.size = sizeof(stats);
    detail::check(dp_volume_get_stats(get(), &stats));
    return stats;
  }
  [[nodiscard]] std::string describe() const
  {
    char* json = nullptr;
    detail::check(dp_volume_describe(get(), &json));
    return detail::take_string(json);
  }
  void close() const { detail::check(dp_volume_close(get())); }

 private:
  static dp_volume* create(std::vector<std::string> const& directories, dp_volume_options options)
  {
    detail::require_abi();
    options.size = sizeof(options);
    std::vector<char const*> names;
    for (auto const& directory : directories) { names.push_back(directory.c_str()); }
    dp_volume* volume = nullptr;
    detail::check(dp_volume_create(names.data(), names.size(), &options, &volume));
    return volume;
  }
};

}  // namespace datapath::client
