// SPDX-License-Identifier: Apache-2.0
#include "streams/trace.hpp"

#include "streams/lane_id.hpp"

#include <algorithm>

namespace datapath {

void Trace::add(TraceRecord const& record)
{
  std::lock_guard const lock{mutex_};
  records_[count_ % capacity] = record;
  ++count_;
}

void Trace::describe(JsonWriter& json) const
{
  std::lock_guard const lock{mutex_};
  json.array("trace");
  auto const kept = std::min<std::uint64_t>(count_, capacity);
  for (auto index = count_ - kept; index < count_; ++index) {
    auto const& record = records_[index % capacity];
    json.object()
      .field("lane", lane_name(static_cast<LaneId>(record.lane)))
      .field("transfer", record.transfer)
      .field("offset", record.offset)
      .field("nbytes", record.nbytes)
      .field("start", record.start)
      .field("end", record.end)
      .field("failed", record.failed)
      .end();
  }
  json.end();
}

}  // namespace datapath
