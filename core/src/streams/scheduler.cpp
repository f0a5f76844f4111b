// SPDX-License-Identifier: Apache-2.0
#include "streams/scheduler.hpp"

#include "streams/live_schedulers.hpp"
#include "support/settings.hpp"

#include <algorithm>
#include <string>
#include <thread>

namespace datapath {

namespace {

constexpr std::uint64_t give_up_nanoseconds = 1'000'000'000;

std::uint64_t or_setting(std::uint64_t value, char const* name)
{ return value != 0 ? value : setting_bytes(name); }

ProgressOptions resolve(SchedulerOptions const& options)
{
  ProgressOptions resolved;
  resolved.pool        = options.pool;
  resolved.chunk_bytes = or_setting(options.chunk_bytes, "streams.chunk_bytes");
  resolved.credits     = or_setting(options.credits, "streams.credits");
  resolved.chunks      = options.chunks != 0
                           ? options.chunks
                           : static_cast<std::uint32_t>(setting_integer("streams.chunks"));
  expects(resolved.chunk_bytes <= (std::uint64_t{1} << 30U),
          "the scheduler's chunk_bytes is larger than 1 GiB");
  expects(resolved.chunks <= 1024, "the scheduler's chunks are more than 1024");
  resolved.chunk_bytes =
    (resolved.chunk_bytes + Staging::alignment - 1) / Staging::alignment * Staging::alignment;
  auto const threads    = setting_integer("streams.copy_threads");
  resolved.copy_threads = threads != 0
                            ? static_cast<std::uint32_t>(threads)
                            : std::clamp(std::thread::hardware_concurrency() / 2, 1U, 4U);
  return resolved;
}

Ref<Device> require(Ref<Device> device)
{
  expects(static_cast<bool>(device),
          "a scheduler needs a device; open \"null\" where there is no GPU");
  return device;
}

}  // namespace

Scheduler::Scheduler(Ref<Device> device, SchedulerOptions const& options)
  : device_{require(std::move(device))},
    options_{resolve(options)},
    progress_{std::make_shared<Progress>(device_, options_)}
{
  progress_->start();
  enlist(progress_);
}

Scheduler::~Scheduler()
{
  if (fork_.inherited()) {
    // Its thread is in the parent: nothing of it may be taken down here.
    (void)new std::shared_ptr<Progress>{std::move(progress_)};
    (void)device_.leak();
    (void)options_.pool.leak();
    return;
  }
  progress_->retire();
}

Ref<Ticket> Scheduler::transfer(TransferRequest&& request)
{
  fork_.check("the scheduler");
  if (closed_.load(std::memory_order_relaxed)) {
    fail(DP_ERR_CLOSED, "the scheduler is closed; make a new one");
  }
  check_place(request.source, request.nbytes, "source");
  check_place(request.destination, request.nbytes, "destination");
  check_disjoint(request.destination, request.source, request.nbytes);
  for (auto const stream : request.after_streams) {
    if (device_->is_capturing(stream)) {
      fail(
        DP_ERR_UNSUPPORTED,
        "a transfer cannot follow a stream that records a graph: the graph would not contain it; "
        "submit it outside of the capture, or let it follow another stream");
    }
  }
  auto transfer = make_ref<Transfer>(progress_, std::move(request));
  auto& events  = transfer->after_events;
  try {
    events.reserve(transfer->request.after_streams.size());
    for (auto const stream : transfer->request.after_streams) {
      events.push_back(device_->acquire_event());
      device_->record(events.back(), stream);
    }
    // After the records: nothing before them can depend on a transfer with a later number.
    transfer->order.sequence = progress_->next_sequence();
    progress_->submit(transfer);
  } catch (...) {
    for (auto const event : events) { device_->release_event(event); }
    throw;
  }
  return transfer;
}

void Scheduler::close()
{
  fork_.check("the scheduler");
  closed_.store(true);
  progress_->retire();
  if (!progress_->wait_idle(setting_nanoseconds("streams.close_timeout"))) {
    progress_->give_up();
    if (!progress_->wait_idle(give_up_nanoseconds)) {
      fail(
        DP_ERR_IO,
        "the scheduler was closed, but " + std::to_string(progress_->live()) +
          " transfers have started and do not end: their tickets stay pending, and their staging "
          "memory and owners are never released; look for a device or a drive that does not answer");
    }
  }
  // The thread may have to wait for memory that I/O may still touch; it lets go then.
  (void)progress_->wait_exited(give_up_nanoseconds);
}

std::string Scheduler::describe() const
{
  fork_.check("the scheduler");
  JsonWriter json;
  json.object()
    .field("closed", closed_.load())
    .field("chunks", options_.chunks)
    .field("credits", options_.credits)
    .field("copy_threads", options_.copy_threads);
  progress_->describe(json);
  progress_->mover().trace().describe(json);
  return json.end().take();
}

dp_stream Scheduler::stream(std::int32_t lane) const
{
  fork_.check("the scheduler");
  if (closed_.load()) { fail(DP_ERR_CLOSED, "the scheduler is closed, and its streams with it"); }
  expects(lane == DP_LANE_H2D || lane == DP_LANE_D2H || lane == DP_LANE_KERNEL,
          "only the lanes DP_LANE_H2D, DP_LANE_D2H and DP_LANE_KERNEL have a stream");
  return progress_->mover().stream(static_cast<LaneId>(lane));
}

dp_lane_stats Scheduler::lane_stats(std::int32_t lane) const
{
  fork_.check("the scheduler");
  expects(lane >= DP_LANE_H2D && lane <= DP_LANE_KERNEL,
          "the lane is none of DP_LANE_H2D .. DP_LANE_KERNEL (0 .. 4)");
  return progress_->mover().lane(static_cast<LaneId>(lane)).stats();
}

}  // namespace datapath
