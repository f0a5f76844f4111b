// SPDX-License-Identifier: Apache-2.0
#include "streams/progress.hpp"

#include "streams/clock.hpp"
#include "support/error.hpp"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

namespace datapath {

namespace {

constexpr std::uint64_t spin_nanoseconds = 20'000;
constexpr std::uint64_t spin_pause       = 1'500;
constexpr std::uint64_t shortest_nap     = 20'000;
constexpr std::uint64_t longest_nap      = 500'000;
constexpr unsigned long timer_slack      = 1'000;

std::chrono::nanoseconds bounded(std::uint64_t nanoseconds)
{
  constexpr std::uint64_t limit = std::uint64_t{1} << 62U;
  return std::chrono::nanoseconds{static_cast<std::int64_t>(std::min(nanoseconds, limit))};
}

}  // namespace

Progress::Progress(Ref<Device> const& device, ProgressOptions const& options)
  : flags_{std::make_unique<FlagPool>(device, options.pool)},
    mover_{std::make_unique<Mover>(device, *this, options)}
{}

Progress::~Progress()
{
  // A ticket that was followed may end after the scheduler; its notice carries a reference.
  for (auto* notice = inbox_.take(); notice != nullptr;) {
    auto const transfer = Ref<Transfer>::adopt(static_cast<Transfer*>(notice->subject));
    notice              = notice->next;
  }
}

void Progress::start()
{
  std::thread{[self = shared_from_this()] {
    ::pthread_setname_np(::pthread_self(), "dp-scheduler");
    // Naps between looks at an event are shorter than the usual slack of 50 us.
    ::prctl(PR_SET_TIMERSLACK, timer_slack);
    self->run();
  }}.detach();
}

void Progress::submit(Ref<Transfer> const& transfer)
{
  live_.fetch_add(1, std::memory_order_seq_cst);
  // Counted first, so that the thread never takes an inbox for empty that is about to be written to.
  if (retired_.load(std::memory_order_seq_cst)) {
    transfer_gone();
    datapath::fail(DP_ERR_CLOSED, "the scheduler is closed; make a new one");
  }
  mover_->lane(transfer->first_lane()).enqueued();
  transfer->retain();
  inbox_.push(transfer->submitted_notice);
}

void Progress::transfer_gone() noexcept
{
  if (live_.fetch_sub(1, std::memory_order_seq_cst) == 1 &&
      retired_.load(std::memory_order_seq_cst)) {
    std::lock_guard const lock{mutex_};
    changed_.notify_all();
    inbox_.wake();
  }
}

void Progress::retire() noexcept
{
  retired_.store(true, std::memory_order_seq_cst);
  inbox_.wake();
}

bool Progress::wait_idle(std::uint64_t nanoseconds)
{
  std::unique_lock lock{mutex_};
  return changed_.wait_for(lock, bounded(nanoseconds), [this] { return live() == 0; });
}

void Progress::give_up() noexcept
{
  giving_up_.store(true);
  inbox_.wake();
}

bool Progress::wait_exited(std::uint64_t nanoseconds)
{
  std::unique_lock lock{mutex_};
  return changed_.wait_for(lock, bounded(nanoseconds), [this] { return exited_; });
}

void Progress::abandon(std::uint64_t nanoseconds) noexcept
{
  abandoned_.store(true);
  inbox_.wake();
  std::unique_lock lock{mutex_};
  changed_.wait_for(lock, bounded(nanoseconds), [this] { return exited_; });
}

void Progress::describe(JsonWriter& json) const
{
  json.field("live_transfers", live());
  mover_->describe(json);
  flags_->describe(json);
}

void Progress::read_inbox()
{
  for (auto* notice = inbox_.take(); notice != nullptr;) {
    auto* const subject = notice->subject;
    auto const kind     = notice->kind;
    notice              = notice->next;
    switch (kind) {
      case NoticeKind::submitted:
        mover_->admit(Ref<Transfer>::adopt(static_cast<Transfer*>(subject)));
        break;
      case NoticeKind::tickets_ended: {
        auto const transfer = Ref<Transfer>::adopt(static_cast<Transfer*>(subject));
        mover_->tickets_ended(*transfer);
        break;
      }
      case NoticeKind::io_ended:
        mover_->io_ended(*static_cast<TransferPiece*>(subject));
        break;
      case NoticeKind::io_released:
        mover_->io_released(*static_cast<TransferPiece*>(subject));
        break;
      case NoticeKind::copied:
        mover_->copied(*static_cast<TransferPiece*>(subject));
        break;
    }
  }
}

void Progress::run()
{
  mover_->adopt_thread();
  last_activity_ = monotonic_now();
  while (!abandoned_.load(std::memory_order_relaxed)) {
    auto active = !inbox_.empty();
    read_inbox();
    if (giving_up_.exchange(false)) {
      mover_->give_up();
      active = true;
    }
    active = mover_->poll_devices() || active;
    active = mover_->poll_gates() || active;
    active = mover_->poll_staging() || active;
    active = mover_->poll_unpoisoned() || active;
    active = mover_->pump() || active;
    if (active) {
      last_activity_ = monotonic_now();
      continue;
    }
    if (retired_.load(std::memory_order_seq_cst) && live() == 0 && mover_->empty()) { break; }
    idle(monotonic_now());
  }
  if (!abandoned_.load()) {
    mover_->shut_down();
    flags_->shut_down();
  }
  std::lock_guard const lock{mutex_};
  exited_ = true;
  changed_.notify_all();
}

void Progress::idle(std::uint64_t now)
{
  auto const quiet = now - last_activity_;
  if (quiet < spin_nanoseconds) {
    // Not at the driver without a pause: callers who record events there would wait for its locks.
    auto const next = now + spin_pause;
    do {
      std::this_thread::yield();
    } while (inbox_.empty() && monotonic_now() < next);
    return;
  }
  if (!mover_->needs_polling()) {
    inbox_.sleep(std::numeric_limits<std::uint64_t>::max());
    last_activity_ = monotonic_now();
    return;
  }
  // In proportion to what the work has taken so far, so that looking costs little and comes little late.
  inbox_.sleep(std::clamp(quiet / 8, shortest_nap, longest_nap));
}

}  // namespace datapath
