// SPDX-License-Identifier: Apache-2.0
#include "io/volume.hpp"

#include "abi/handles.hpp"
#include "abi/requests.hpp"

using namespace datapath;

dp_status dp_volume_create(char const* const* directories,
                           size_t count,
                           dp_volume_options const* options,
                           dp_volume** out)
{
  return guard([&] {
    auto& place      = result_place(out, "the volume");
    auto const given = read_options(options);
    expects(directories != nullptr || count == 0, "the array of directories is NULL");
    std::vector<std::string> names;
    for (size_t i = 0; i < count; ++i) {
      expects(directories[i] != nullptr, "the name of a volume's directory is NULL");
      names.emplace_back(directories[i]);
    }
    VolumeOptions resolved;
    resolved.capacity      = given.capacity;
    resolved.segment_bytes = given.segment_bytes;
    resolved.stripe_bytes  = given.stripe_bytes;
    resolved.reserve_bytes = given.reserve_bytes;
    resolved.keep_files    = given.keep_files != 0;
    place                  = to_handle<dp_volume>(
      make_ref<Volume>(std::move(names), resolved, share_handle(given.engine)));
  });
}

void dp_volume_retain(dp_volume* volume)
{ retain_handle(volume); }

void dp_volume_release(dp_volume* volume)
{ release_handle(volume); }

dp_status dp_volume_close(dp_volume* volume)
{
  return guard([&] { from_handle(volume).close(); });
}

dp_status dp_volume_describe(dp_volume* volume, char** json)
{
  return guard([&] {
    auto& place = result_place(json, "the JSON text");
    place       = give_string(from_handle(volume).describe());
  });
}

dp_status dp_volume_get_stats(dp_volume* volume, dp_volume_stats* out)
{
  return guard([&] { write_info(out, from_handle(volume).stats()); });
}

dp_status dp_volume_allocate(dp_volume* volume, uint64_t nbytes, dp_extent** out)
{
  return guard([&] {
    auto& place = result_place(out, "the extent");
    place       = to_handle<dp_extent>(from_handle(volume).allocate(nbytes));
  });
}

void dp_extent_release(dp_extent* extent)
{ release_handle(extent); }

void dp_extent_retain(dp_extent* extent)
{ retain_handle(extent); }

dp_status dp_extent_free(dp_extent* extent)
{
  return guard([&] { from_handle(extent).free(); });
}

dp_status dp_extent_size(dp_extent* extent, uint64_t* nbytes)
{
  return guard([&] {
    auto& place = result_place(nbytes, "the size");
    place       = from_handle(extent).nbytes();
  });
}

dp_status dp_extent_read(
  dp_extent* extent, dp_io_request const* requests, size_t count, dp_owner owner, dp_ticket** out)
{ return submit_requests(&Extent::read, extent, requests, count, owner, out); }

dp_status dp_extent_write(
  dp_extent* extent, dp_io_request const* requests, size_t count, dp_owner owner, dp_ticket** out)
{ return submit_requests(&Extent::write, extent, requests, count, owner, out); }
