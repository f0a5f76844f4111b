// SPDX-License-Identifier: Apache-2.0
#include "io/volume.hpp"

#include "support/error.hpp"
#include "support/json.hpp"
#include "support/log.hpp"
#include "support/settings.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace datapath {

namespace {

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit)
{ return (value + unit - 1) / unit * unit; }

std::uint64_t or_setting(std::uint64_t option, char const* name)
{ return option != 0 ? option : setting_bytes(name); }

/// Larger units of growth and of striping mean the same as this, and must not overflow.
constexpr std::uint64_t largest_unit = std::uint64_t{1} << 50U;

/// A default that suits a large drive must not make a small one unusable.
constexpr std::uint64_t default_reserve_share = 20;

std::unique_ptr<Drive> make_drive(std::string directory,
                                  VolumeOptions const& options,
                                  Engine& engine,
                                  std::size_t number)
{
  auto reserve = or_setting(options.reserve_bytes, "volume.reserve_bytes");
  auto drive   = std::make_unique<Drive>(std::move(directory),
                                         options.keep_files,
                                         engine.direct_mode(),
                                         engine.backend_for_drive(number));
  if (options.reserve_bytes == 0 && setting("volume.reserve_bytes").source == "default") {
    reserve = std::min(reserve, drive->file().file_system_bytes() / default_reserve_share);
  }
  drive->set_reserve_bytes(reserve);
  return drive;
}

}  // namespace

Volume::Volume(std::vector<std::string> directories,
               VolumeOptions const& options,
               Ref<Engine> engine)
  : own_engine_{!engine},
    keep_files_{options.keep_files},
    engine_{engine ? std::move(engine) : make_ref<Engine>(EngineOptions{})}
{
  engine_->check_usable();
  expects(!directories.empty(), "a volume needs at least one directory");
  SpaceLimits limits;
  std::vector<std::unique_ptr<Drive>> drives;
  for (auto& directory : directories) {
    expects(!directory.empty(), "the name of a volume's directory is empty");
    drives.push_back(make_drive(std::move(directory), options, *engine_, drives.size()));
    auto const unit = drives.back()->file().descriptors().write_alignment;
    limits.grain    = std::max<std::uint64_t>(limits.grain, unit);
  }
  if (options.capacity < limits.grain) {
    fail(DP_ERR_INVALID,
         "a volume's capacity is the ceiling of its bytes and at least one grain of " +
           std::to_string(limits.grain) + " bytes; it is " + std::to_string(options.capacity));
  }
  limits.capacity    = options.capacity / limits.grain * limits.grain;
  auto const unit_of = [&limits](std::uint64_t option, char const* name) {
    return round_up(std::min(or_setting(option, name), largest_unit), limits.grain);
  };
  limits.segment_bytes = unit_of(options.segment_bytes, "volume.segment_bytes");
  limits.stripe_bytes  = unit_of(options.stripe_bytes, "volume.stripe_bytes");
  warn_of_directories(drives);
  space_ = std::make_unique<VolumeSpace>(std::move(drives), limits);
}

Volume::~Volume()
{
  if (space_) { space_->close(false); }
}

void Volume::last_reference_gone() const noexcept
{
  if (!fork_.inherited()) { delete this; }
}

void Volume::warn_of_directories(std::vector<std::unique_ptr<Drive>> const& drives)
{
  for (auto drive = drives.begin(); drive != drives.end(); ++drive) {
    auto const& file = (*drive)->file();
    if (file.in_memory()) {
      warnings_.push_back(
        "'" + file.directory() +
        "' lies in memory (tmpfs): what is spilled there frees no memory of the host");
    }
    auto const same = std::find_if(drives.begin(), drive, [&](auto const& other) {
      return other->file().device() == file.device();
    });
    if (same != drive) {
      warnings_.push_back("'" + file.directory() + "' and '" + (*same)->file().directory() +
                          "' are on one file system: striping over them gains nothing");
    }
  }
  for (auto const& warning : warnings_) { log_once(LogLevel::warning, "io.volume", warning); }
}

Ref<Extent> Volume::allocate(std::uint64_t nbytes)
{
  fork_.check("the volume");
  engine_->check_usable();
  auto runs = space_->allocate(nbytes);
  return Ref<Extent>::adopt(new Extent(Ref<Volume>::share(this), nbytes, std::move(runs)));
}

IoEntry Volume::enter()
{
  fork_.check("the volume");
  IoEntry entry{engine_, engine_->enter(), Ref<IoDoor>::share(this), 0};
  if (!inflight_.enter(entry.door_token)) {
    engine_->leave(entry.engine_token);
    fail(DP_ERR_CLOSED, "the volume is closed");
  }
  return entry;
}

void Volume::leave(IoEntry const& entry) noexcept
{
  inflight_.leave(entry.door_token);
  engine_->leave(entry.engine_token);
}

void Volume::count_bytes(IoOp op, std::uint64_t nbytes) noexcept
{ (op == IoOp::read ? bytes_read_ : bytes_written_).fetch_add(nbytes, std::memory_order_relaxed); }

void Volume::close()
{
  fork_.check("the volume");
  auto const ended = inflight_.shut(engine_->close_timeout(), [this] { return attempts_ended(); });
  auto const left  = inflight_.count();
  space_->close(!ended);
  if (!ended) {
    fail_system(
      ETIMEDOUT,
      "closing the volume: " + std::to_string(left) +
        " calls are in flight and nothing has ended for io.close_timeout",
      {},
      -1,
      "their tickets stay pending, and the space of the files is held until the process ends");
  }
  if (own_engine_) { engine_->close(); }
}

dp_volume_stats Volume::stats() const
{
  fork_.check("the volume");
  auto const counts = space_->counts();
  dp_volume_stats stats{};
  stats.size          = sizeof(stats);
  stats.drives        = static_cast<std::uint32_t>(space_->drive_count());
  stats.capacity      = space_->limits().capacity;
  stats.backed        = counts.backed;
  stats.allocated     = counts.allocated;
  stats.requested     = counts.requested;
  stats.extents       = counts.extents;
  stats.bytes_read    = bytes_read_.load(std::memory_order_relaxed);
  stats.bytes_written = bytes_written_.load(std::memory_order_relaxed);
  return stats;
}

std::string Volume::describe() const
{
  auto const now = stats();
  JsonWriter json;
  json.object()
    .field("capacity", now.capacity)
    .field("backed", now.backed)
    .field("allocated", now.allocated)
    .field("requested", now.requested)
    .field("extents", now.extents)
    .field("bytes_read", now.bytes_read)
    .field("bytes_written", now.bytes_written)
    .field("grain", space_->limits().grain)
    .field("segment_bytes", space_->limits().segment_bytes)
    .field("stripe_bytes", space_->limits().stripe_bytes)
    .field("keep_files", keep_files_)
    .field("closed", inflight_.is_shut())
    .array("warnings");
  for (auto const& warning : warnings_) { json.raw({}, json_quote(warning)); }
  json.end();
  space_->describe(json);
  return json.end().take();
}

}  // namespace datapath
