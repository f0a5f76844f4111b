// SPDX-License-Identifier: Apache-2.0
#include "abi/handles.hpp"
#include "streams/scheduler.hpp"

using namespace datapath;

namespace {

Place to_place(dp_place const* given, char const* which)
{
  if (given == nullptr) { fail(DP_ERR_INVALID, std::string{"the "} + which + " is NULL"); }
  Place place;
  place.kind    = given->kind;
  place.address = given->address;
  place.offset  = given->offset;
  if (given->kind == DP_FILE) { place.file = share_handle(given->file); }
  if (given->kind == DP_EXTENT) { place.extent = share_handle(given->extent); }
  return place;
}

}  // namespace

dp_status dp_scheduler_create(dp_device* device,
                              dp_scheduler_options const* options,
                              dp_scheduler** out)
{
  return guard([&] {
    auto& place      = result_place(out, "the scheduler");
    auto const given = read_options(options);
    SchedulerOptions resolved;
    resolved.chunks      = given.chunks;
    resolved.chunk_bytes = given.chunk_bytes;
    resolved.credits     = given.credits;
    resolved.pool        = share_handle(given.pool);
    place = to_handle<dp_scheduler>(make_ref<Scheduler>(share_handle(device), resolved));
  });
}

void dp_scheduler_retain(dp_scheduler* scheduler)
{ retain_handle(scheduler); }

void dp_scheduler_release(dp_scheduler* scheduler)
{ release_handle(scheduler); }

dp_status dp_scheduler_close(dp_scheduler* scheduler)
{
  return guard([&] { from_handle(scheduler).close(); });
}

dp_status dp_scheduler_describe(dp_scheduler* scheduler, char** json)
{
  return guard(
    [&] { result_place(json, "the JSON text") = give_string(from_handle(scheduler).describe()); });
}

dp_status dp_transfer(dp_scheduler* scheduler,
                      dp_place const* destination,
                      dp_place const* source,
                      uint64_t nbytes,
                      dp_transfer_options const* options,
                      dp_ticket** out)
{
  return guard([&] {
    auto const given = read_options(options);
    TransferRequest request;
    // First, so that whatever fails below releases it.
    request.owner = Owner{given.owner};
    auto& place   = result_place(out, "the ticket");
    auto& moving  = from_handle(scheduler);

    request.destination = to_place(destination, "destination");
    request.source      = to_place(source, "source");
    request.nbytes      = nbytes;
    request.priority    = given.priority;
    request.deadline    = given.deadline;
    expects(given.after_stream_count == 0 || given.after_streams != nullptr,
            "after_stream_count is not 0, but after_streams is NULL");
    expects(given.after_ticket_count == 0 || given.after_tickets != nullptr,
            "after_ticket_count is not 0, but after_tickets is NULL");
    request.after_streams.assign(given.after_streams,
                                 given.after_streams + given.after_stream_count);
    request.after_tickets.reserve(given.after_ticket_count);
    for (std::size_t index = 0; index < given.after_ticket_count; ++index) {
      auto& ticket = from_handle(given.after_tickets[index]);
      ticket.check_usable();
      request.after_tickets.push_back(Ref<Ticket>::share(&ticket));
    }
    place = to_handle<dp_ticket>(moving.transfer(std::move(request)));
  });
}

dp_status dp_scheduler_stream(dp_scheduler* scheduler, int32_t lane, dp_stream* out)
{
  return guard([&] { result_place(out, "the stream") = from_handle(scheduler).stream(lane); });
}

dp_status dp_scheduler_lane_stats(dp_scheduler* scheduler, int32_t lane, dp_lane_stats* out)
{
  return guard([&] { write_info(out, from_handle(scheduler).lane_stats(lane)); });
}
