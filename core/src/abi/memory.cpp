// SPDX-License-Identifier: Apache-2.0
/// @file
/// dp_pool_*, dp_register and dp_buffer_*.
#include "abi/handles.hpp"
#include "memory/pool.hpp"
#include "memory/registration.hpp"

using namespace datapath;

dp_status dp_pool_create(dp_pool_options const* options, dp_pool** out)
{
  return guard([&] {
    auto& place      = result_place(out, "the pool");
    auto const given = read_options(options);
    expects(given.numa_node >= 0, "numa_node is the node plus one; 0 leaves the choice");
    place = to_handle<dp_pool>(make_ref<Pool>(PoolOptions{.budget      = given.budget,
                                                          .piece_bytes = given.piece_bytes,
                                                          .huge_pages  = given.huge_pages,
                                                          .numa_node   = given.numa_node - 1,
                                                          .lock        = given.lock,
                                                          .device = share_handle(given.device)}));
  });
}

void dp_pool_retain(dp_pool* pool)
{ retain_handle(pool); }
void dp_pool_release(dp_pool* pool)
{ release_handle(pool); }

dp_status dp_pool_close(dp_pool* pool)
{
  return guard([&] { from_handle(pool).close(); });
}

dp_status dp_pool_allocate(dp_pool* pool, uint64_t nbytes, uint64_t alignment, dp_buffer** out)
{
  return guard([&] {
    auto& place = result_place(out, "the buffer");
    place       = to_handle<dp_buffer>(from_handle(pool).allocate(nbytes, alignment));
  });
}

dp_status dp_pool_reserve(dp_pool* pool, uint64_t nbytes)
{
  return guard([&] { from_handle(pool).reserve(nbytes); });
}

dp_status dp_pool_trim(dp_pool* pool, uint64_t* released)
{
  return guard([&] {
    auto const bytes = from_handle(pool).trim();
    if (released != nullptr) { *released = bytes; }
  });
}

dp_status dp_pool_get_stats(dp_pool* pool, dp_pool_stats* out)
{
  return guard([&] { write_info(out, from_handle(pool).stats()); });
}

dp_status dp_register(void* pointer,
                      uint64_t nbytes,
                      dp_register_options const* options,
                      dp_owner owner,
                      dp_buffer** out)
{
  // Before any check, so that the owner is released whatever fails.
  Owner held{owner};
  return guard([&] {
    auto& place      = result_place(out, "the buffer");
    auto const given = read_options(options);
    auto device      = share_handle(given.device);
    held.leak();
    place = to_handle<dp_buffer>(register_memory(
      pointer, nbytes, given.read_only != 0, given.required != 0, std::move(device), owner));
  });
}

dp_status dp_buffer_get_info(dp_buffer* buffer, dp_buffer_info* out)
{
  return guard([&] {
    auto const& source = from_handle(buffer);
    auto const* device = source.device();
    dp_buffer_info info{};
    info.is_pinned     = source.is_pinned() ? 1 : 0;
    info.is_registered = source.is_registered() ? 1 : 0;
    info.device_ordinal =
      device != nullptr && device->is_cuda() && source.is_pinned() ? device->ordinal() : -1;
    info.pointer        = source.data();
    info.device_pointer = source.device_address();
    info.nbytes         = source.nbytes();
    info.reason         = source.reason().empty() ? nullptr : source.reason().c_str();
    write_info(out, info);
  });
}

void dp_buffer_retain(dp_buffer* buffer)
{ retain_handle(buffer); }
void dp_buffer_release(dp_buffer* buffer)
{ release_handle(buffer); }

dp_status dp_buffer_record_use(dp_buffer* buffer, dp_device* device, dp_stream stream)
{
  return guard([&] { from_handle(buffer).record_use(from_handle(device), stream); });
}
