// SPDX-License-Identifier: Apache-2.0
#include "streams/null_event.hpp"

#include <algorithm>
#include <utility>

namespace datapath {

std::uint64_t NullEvent::begin_record()
{
  std::lock_guard const lock{mutex_};
  capture_.reset();
  return ++recorded_;
}

void NullEvent::record_captured(std::shared_ptr<NullCapture> capture)
{
  std::lock_guard const lock{mutex_};
  capture_ = std::move(capture);
}

std::shared_ptr<NullCapture> NullEvent::capture() const
{
  std::lock_guard const lock{mutex_};
  return capture_;
}

std::uint64_t NullEvent::recorded() const
{
  std::lock_guard const lock{mutex_};
  return recorded_;
}

bool NullEvent::passed() const
{
  std::lock_guard const lock{mutex_};
  return passed_ >= recorded_;
}

void NullEvent::pass(std::uint64_t generation, bool aborted)
{
  std::lock_guard const lock{mutex_};
  passed_  = std::max(passed_, generation);
  aborted_ = aborted_ || aborted;
  changed_.notify_all();
}

bool NullEvent::wait(std::uint64_t generation)
{
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] { return passed_ >= generation; });
  return !aborted_;
}

}  // namespace datapath
