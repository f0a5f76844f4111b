// SPDX-License-Identifier: Apache-2.0
#include "io/volume_space.hpp"

#include "support/error.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>

namespace datapath {

namespace {

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit)
{ return (value + unit - 1) / unit * unit; }

void append_run(std::vector<ExtentRun>& runs, ExtentRun run)
{
  if (!runs.empty()) {
    auto& last = runs.back();
    if (last.drive == run.drive && last.offset + last.nbytes == run.offset) {
      last.nbytes += run.nbytes;
      return;
    }
  }
  runs.push_back(run);
}

/// Hands out the ranges of one drive from front to back.
class RangeReader {
 public:
  explicit RangeReader(std::vector<FileRange> const& ranges) : ranges_{ranges} {}
  FileRange next(std::uint64_t most)
  {
    auto const& range = ranges_[index_];
    FileRange const part{range.offset + used_, std::min(most, range.nbytes - used_)};
    used_ += part.nbytes;
    if (used_ == range.nbytes) {
      ++index_;
      used_ = 0;
    }
    return part;
  }

 private:
  std::vector<FileRange> const& ranges_;
  std::size_t index_{0};
  std::uint64_t used_{0};
};

/// Deals `total` bytes to the drives in stripes and says how many each gets.
std::vector<std::uint64_t> deal(std::uint64_t total, std::uint64_t stripe, std::size_t drives)
{
  std::vector<std::uint64_t> shares(drives, total / (stripe * drives) * stripe);
  auto rest = total % (stripe * drives);
  for (std::size_t i = 0; rest != 0; ++i) {
    auto const part = std::min(rest, stripe);
    shares[i] += part;
    rest -= part;
  }
  return shares;
}

}  // namespace

struct VolumeSpace::Attempt {
  explicit Attempt(std::size_t drives) : taken(drives), excluded(drives, 0), cannot_grow(drives, 0)
  {}
  std::vector<std::vector<FileRange>> taken;  ///< By drive.
  std::vector<char> excluded;                 ///< Could not give its share.
  std::vector<char> cannot_grow;              ///< Its file system refused.
};

VolumeSpace::VolumeSpace(std::vector<std::unique_ptr<Drive>> drives, SpaceLimits limits)
  : drives_{std::move(drives)}, limits_{limits}
{}

std::vector<ExtentRun> VolumeSpace::allocate(std::uint64_t nbytes)
{
  std::lock_guard const lock{mutex_};
  if (closed_) { fail(DP_ERR_CLOSED, "the volume is closed"); }
  if (nbytes > limits_.capacity) { fail_full(nbytes); }
  auto const total = round_up(nbytes, limits_.grain);
  if (total > limits_.capacity - counts_.allocated) { fail_full(nbytes); }
  std::vector<ExtentRun> runs;
  if (total != 0) {
    Attempt attempt{drives_.size()};
    try {
      runs = try_drives(attempt, total);
      if (runs.empty()) { runs = try_anywhere(attempt, total); }
    } catch (...) {
      undo(attempt);
      throw;
    }
    if (runs.empty()) { fail_full(nbytes); }
  }
  counts_.allocated += total;
  counts_.requested += nbytes;
  ++counts_.extents;
  return runs;
}

std::vector<std::size_t> VolumeSpace::usable_drives(Attempt const& attempt)
{
  std::vector<std::size_t> usable;
  auto const first = turn_++;
  for (std::size_t i = 0; i < drives_.size(); ++i) {
    auto const drive = (first + i) % drives_.size();
    if (attempt.excluded[drive] == 0) { usable.push_back(drive); }
  }
  return usable;
}

/// On one drive, or striped over all that can take their share.
std::vector<ExtentRun> VolumeSpace::try_drives(Attempt& attempt, std::uint64_t total)
{
  for (auto usable = usable_drives(attempt); !usable.empty(); usable = usable_drives(attempt)) {
    if (total <= limits_.stripe_bytes) {
      // The first of equals is the one whose turn it is.
      auto const least =
        *std::min_element(usable.begin(), usable.end(), [&](std::size_t a, std::size_t b) {
          return drives_[a]->backend().load() < drives_[b]->backend().load();
        });
      usable.assign(1, least);
    }
    auto const shares = deal(total, limits_.stripe_bytes, usable.size());
    bool complete     = true;
    for (std::size_t i = 0; i < usable.size() && complete; ++i) {
      complete = secure(attempt, usable[i], shares[i]);
      if (!complete) { attempt.excluded[usable[i]] = 1; }
    }
    if (!complete) {
      undo(attempt);
      continue;
    }
    std::vector<RangeReader> readers;
    for (auto const drive : usable) { readers.emplace_back(attempt.taken[drive]); }
    std::vector<ExtentRun> runs;
    std::uint64_t logical = 0;
    for (std::size_t i = 0; logical < total; i = (i + 1) % usable.size()) {
      auto const stripe_end = std::min(total, logical + limits_.stripe_bytes);
      while (logical < stripe_end) {
        auto const range = readers[i].next(stripe_end - logical);
        append_run(runs, {logical, range.nbytes, range.offset, drives_[usable[i]].get()});
        logical += range.nbytes;
      }
    }
    return runs;
  }
  return {};
}

/// Whatever the drives have left, one after the other.
std::vector<ExtentRun> VolumeSpace::try_anywhere(Attempt& attempt, std::uint64_t total)
{
  std::vector<ExtentRun> runs;
  std::uint64_t logical = 0;
  for (std::size_t i = 0; i < drives_.size() && logical < total; ++i) {
    auto const have = drives_[i]->free_ranges().nbytes() + room(attempt, i);
    auto part       = std::min(total - logical, have);
    if (part != 0 && !secure(attempt, i, part)) {
      // It could not grow after all.
      part = std::min(part, drives_[i]->free_ranges().nbytes());
      if (part == 0 || !secure(attempt, i, part)) { continue; }
    }
    for (auto const& range : attempt.taken[i]) {
      append_run(runs, {logical, range.nbytes, range.offset, drives_[i].get()});
      logical += range.nbytes;
    }
  }
  if (logical < total) {
    undo(attempt);
    return {};
  }
  return runs;
}

std::uint64_t VolumeSpace::room(Attempt const& attempt, std::size_t drive) const
{
  if (attempt.cannot_grow[drive] != 0) { return 0; }
  auto const ceiling = (limits_.capacity - counts_.backed) / limits_.grain * limits_.grain;
  return ceiling == 0 ? 0 : std::min(ceiling, drives_[drive]->room(limits_.grain));
}

/// In steps of a segment, but no drive takes more than its share of the ceiling before it must:
/// else the first one would leave the others nothing to stripe over.
bool VolumeSpace::grow(Attempt& attempt, std::size_t index, std::uint64_t needed)
{
  auto& drive      = *drives_[index];
  auto const space = room(attempt, index);
  if (space < needed) { return false; }
  auto const fair = limits_.capacity / drives_.size();
  auto const left = fair > drive.backed() ? round_up(fair - drive.backed(), limits_.grain) : 0;
  auto const step =
    std::min(space, std::max(needed, std::min(round_up(needed, limits_.segment_bytes), left)));
  for (auto const by : {step, needed}) {
    if (drive.grow(by)) {
      counts_.backed += by;
      return true;
    }
    if (by == needed) { break; }
  }
  attempt.cannot_grow[index] = 1;
  return false;
}

bool VolumeSpace::secure(Attempt& attempt, std::size_t index, std::uint64_t nbytes)
{
  if (nbytes == 0) { return true; }
  auto& drive = *drives_[index];
  auto& taken = attempt.taken[index];
  if (drive.take_one(nbytes, taken)) { return true; }
  // One range, if the file may grow for it; else what lies scattered.
  if (grow(attempt, index, nbytes - drive.free_ranges().nbytes_before(drive.backed())) &&
      drive.take_one(nbytes, taken)) {
    return true;
  }
  auto const free = drive.free_ranges().nbytes();
  if (free < nbytes && !grow(attempt, index, nbytes - free)) { return false; }
  drive.take_many(nbytes, taken);
  return true;
}

void VolumeSpace::undo(Attempt& attempt)
{
  for (std::size_t i = 0; i < drives_.size(); ++i) {
    for (auto const& range : attempt.taken[i]) { drives_[i]->give_back(range); }
    attempt.taken[i].clear();
  }
}

void VolumeSpace::give_back(std::span<ExtentRun const> runs, std::uint64_t nbytes) noexcept
{
  std::lock_guard const lock{mutex_};
  for (auto const& run : runs) {
    counts_.allocated -= run.nbytes;
    if (!closed_) { run.drive->give_back({run.offset, run.nbytes}); }
  }
  counts_.requested -= nbytes;
  --counts_.extents;
}

SpaceCounts VolumeSpace::counts() const
{
  std::lock_guard const lock{mutex_};
  return counts_;
}

void VolumeSpace::fail_full(std::uint64_t asked) const
{
  ErrorInfo error;
  error.status   = DP_ERR_NO_SPACE;
  error.os_errno = ENOSPC;
  error.path     = drives_.front()->file().directory();
  error.message  = "the volume is full: " + std::to_string(asked) + " bytes were asked for, " +
                   std::to_string(limits_.capacity - counts_.allocated) + " of its capacity of " +
                   std::to_string(limits_.capacity) + " bytes are free";
  for (auto const& drive : drives_) {
    error.message +=
      "; '" + drive->file().directory() + "' has " + std::to_string(drive->free_ranges().nbytes()) +
      " bytes free in its file and can grow by " + std::to_string(drive->room(limits_.grain)) +
      " more with " + std::to_string(drive->reserve_bytes()) + " left in reserve";
    if (!drive->grow_error().empty()) { error.message += " (" + drive->grow_error() + ")"; }
  }
  error.message += "; free extents, raise the capacity, free space on the drive or add a directory";
  throw Error{std::move(error)};
}

void VolumeSpace::describe(JsonWriter& json) const
{
  std::lock_guard const lock{mutex_};
  json.array("drives");
  for (auto const& drive : drives_) {
    auto const& file = drive->file();
    json.object()
      .field("directory", file.directory())
      .field("path", file.path())
      .field("open", file.is_open())
      .field("has_name", file.has_name())
      .field("in_memory", file.in_memory())
      .field("preallocates", file.preallocates())
      .field("backed", drive->backed())
      .field("free", drive->free_ranges().nbytes())
      .field("free_ranges", static_cast<std::uint64_t>(drive->free_ranges().count()))
      .field("largest_free", drive->free_ranges().largest())
      .field("reserve_bytes", drive->reserve_bytes())
      .field("queued", drive->backend().load())
      .field("backend", drive->backend().name())
      .field("grow_error", drive->grow_error());
    if (file.is_open()) {
      json.field("direct", file.descriptors().use_direct())
        .field("direct_reason", file.descriptors().direct_reason)
        .field("available", file.available());
    }
    json.end();
  }
  json.end();
}

void VolumeSpace::close(bool requests_pending) noexcept
{
  std::lock_guard const lock{mutex_};
  closed_ = true;
  for (auto const& drive : drives_) { drive->close(requests_pending); }
  counts_.backed = 0;
}

}  // namespace datapath
