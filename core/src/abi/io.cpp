// SPDX-License-Identifier: Apache-2.0
#include "abi/handles.hpp"
#include "abi/requests.hpp"
#include "io/engine.hpp"
#include "io/file.hpp"

using namespace datapath;

dp_status dp_engine_create(dp_engine_options const* options, dp_engine** out)
{
  return guard([&] {
    auto& place      = result_place(out, "the engine");
    auto const given = read_options(options);
    EngineOptions resolved;
    if (given.backend != nullptr) { resolved.backend = given.backend; }
    if (given.faults != nullptr) { resolved.faults = given.faults; }
    resolved.depth              = given.depth;
    resolved.threads            = given.threads;
    resolved.direct             = given.direct;
    resolved.max_inflight_bytes = given.max_inflight_bytes;
    place                       = to_handle<dp_engine>(make_ref<Engine>(std::move(resolved)));
  });
}

void dp_engine_retain(dp_engine* engine)
{ retain_handle(engine); }

void dp_engine_release(dp_engine* engine)
{ release_handle(engine); }

dp_status dp_engine_close(dp_engine* engine)
{
  return guard([&] { from_handle(engine).close(); });
}

dp_status dp_engine_describe(dp_engine* engine, char** json)
{
  return guard([&] {
    auto& place = result_place(json, "the JSON text");
    place       = give_string(from_handle(engine).describe());
  });
}

dp_status dp_engine_open(dp_engine* engine, char const* path, char const* mode, dp_file** out)
{
  return guard([&] {
    auto& place = result_place(out, "the file");
    expects(path != nullptr, "the path is NULL");
    expects(mode != nullptr, "the mode is NULL");
    place = to_handle<dp_file>(from_handle(engine).open(path, mode));
  });
}

void dp_file_retain(dp_file* file)
{ retain_handle(file); }

void dp_file_release(dp_file* file)
{ release_handle(file); }

dp_status dp_file_close(dp_file* file)
{
  return guard([&] { from_handle(file).close(); });
}

dp_status dp_file_size(dp_file* file, uint64_t* nbytes)
{
  return guard([&] {
    auto& place = result_place(nbytes, "the size");
    place       = from_handle(file).size();
  });
}

dp_status dp_file_truncate(dp_file* file, uint64_t nbytes)
{
  return guard([&] { from_handle(file).truncate(nbytes); });
}

dp_status dp_file_sync(dp_file* file)
{
  return guard([&] { from_handle(file).sync(); });
}

dp_status dp_file_read(
  dp_file* file, dp_io_request const* requests, size_t count, dp_owner owner, dp_ticket** out)
{ return submit_requests(&File::read, file, requests, count, owner, out); }

dp_status dp_file_write(
  dp_file* file, dp_io_request const* requests, size_t count, dp_owner owner, dp_ticket** out)
{ return submit_requests(&File::write, file, requests, count, owner, out); }
