// SPDX-License-Identifier: Apache-2.0
#include "io/faulty_backend.hpp"

#include "io/cut.hpp"
#include "io/io_thread.hpp"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <limits>
#include <utility>

namespace datapath {

namespace {

/// A window that does not fill is let go after this time.
constexpr std::uint64_t window_patience_ns = 2'000'000;
constexpr auto never                       = std::numeric_limits<std::uint64_t>::max();

thread_local FaultyBackend const* backend_of_thread = nullptr;

std::uint64_t now_ns()
{
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                      std::chrono::steady_clock::now().time_since_epoch())
                                      .count());
}

/// What a lost completion would have ended is never given back; kept here, it is no leak by
/// accident.
void keep_for_good(IoPiece& piece)
{
  static auto& mutex = *new std::mutex;
  static auto& kept  = *new std::vector<IoPiece*>;
  std::lock_guard const lock{mutex};
  kept.push_back(&piece);
}

/// Lets the next attempt move about half of what is asked for.
void shorten(IoPiece& piece)
{
  auto const half =
    std::min<std::uint64_t>(piece.nbytes / 2, std::numeric_limits<std::uint32_t>::max());
  if (half == 0) { return; }
  piece.attempt_limit = static_cast<std::uint32_t>(half);
  if (piece.direct) {
    auto const unit = direct_unit(piece);
    if (half >= unit) {
      piece.attempt_limit = static_cast<std::uint32_t>(half / unit * unit);
    } else {
      piece.direct = false;
    }
  }
}

}  // namespace

FaultyBackend::FaultyBackend(std::unique_ptr<Backend> inner, std::shared_ptr<FaultPlan> plan)
  : inner_{std::move(inner)}, plan_{std::move(plan)}
{
  thread_ = start_io_thread("dp-faults", [this] { work(); });
}

FaultyBackend::~FaultyBackend()
{ (void)FaultyBackend::stop(); }

void FaultyBackend::submit(IoList pieces)
{
  IoList untouched;
  while (auto* const piece = pieces.pop_front()) {
    auto const verdict = plan_->judge(*piece);
    if (verdict.kill) { ::kill(::getpid(), SIGKILL); }
    if (verdict.lost) {
      lost_.fetch_add(1, std::memory_order_relaxed);
      keep_for_good(*piece);
      continue;
    }
    if (verdict.shortened) { shorten(*piece); }
    if (verdict.os_errno != 0 || verdict.delay_ns != 0) {
      hold(*piece, verdict.os_errno, verdict.delay_ns);
    } else if (verdict.window != 0) {
      reorder(*piece, verdict.window);
    } else {
      untouched.push_back(*piece);
    }
  }
  if (!untouched.empty()) { inner_->submit(untouched); }
}

void FaultyBackend::hold(IoPiece& piece, int os_errno, std::uint64_t delay_ns)
{
  {
    std::lock_guard const lock{mutex_};
    if (!stopping_) {
      held_.emplace(now_ns() + delay_ns, Held{&piece, os_errno});
      changed_.notify_all();
      return;
    }
  }
  attempt_ended(piece, -ECANCELED);
}

void FaultyBackend::reorder(IoPiece& piece, std::uint64_t window)
{
  IoList full;
  {
    std::lock_guard const lock{mutex_};
    if (window_.empty()) { window_due_ = now_ns() + window_patience_ns; }
    window_.push_back(&piece);
    if (window_.size() >= window) { flush_window(full); }
    changed_.notify_all();
  }
  if (!full.empty()) { inner_->submit(full); }
}

void FaultyBackend::flush_window(IoList& out)
{
  for (auto left = window_.size(); left > 1; --left) {
    random_ = random_ * 6364136223846793005ULL + 1442695040888963407ULL;
    std::swap(window_[left - 1], window_[(random_ >> 33U) % left]);
  }
  for (auto* const piece : window_) { out.push_back(*piece); }
  window_.clear();
}

void FaultyBackend::work() noexcept
{
  backend_of_thread = this;
  std::unique_lock lock{mutex_};
  while (true) {
    auto const now = now_ns();
    IoList through;
    std::vector<Held> failing;
    while (!held_.empty() && (held_.begin()->first <= now || stopping_)) {
      auto const held = held_.begin()->second;
      held.os_errno == 0 ? through.push_back(*held.piece) : failing.push_back(held);
      held_.erase(held_.begin());
    }
    if (!window_.empty() && (window_due_ <= now || stopping_)) { flush_window(through); }
    if (!through.empty() || !failing.empty()) {
      lock.unlock();
      if (!through.empty()) { inner_->submit(through); }
      for (auto const& held : failing) {
        attempts_ended_.fetch_add(1, std::memory_order_relaxed);
        attempt_ended(*held.piece, -held.os_errno);
      }
      lock.lock();
      continue;
    }
    if (stopping_) { return; }
    auto const due =
      std::min(held_.empty() ? never : held_.begin()->first, window_.empty() ? never : window_due_);
    if (due == never) {
      changed_.wait(lock);
    } else {
      changed_.wait_for(lock, std::chrono::nanoseconds{static_cast<std::int64_t>(due - now)});
    }
  }
}

bool FaultyBackend::stop()
{
  {
    std::lock_guard const lock{mutex_};
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) { thread_.join(); }
  return inner_->stop();
}

bool FaultyBackend::on_own_thread() const noexcept
{ return backend_of_thread == this || inner_->on_own_thread(); }

std::uint64_t FaultyBackend::attempts_ended() const noexcept
{ return attempts_ended_.load(std::memory_order_relaxed) + inner_->attempts_ended(); }

void FaultyBackend::describe(JsonWriter& json) const
{
  json.field("lost_completions", lost_.load(std::memory_order_relaxed));
  inner_->describe(json);
}

}  // namespace datapath
