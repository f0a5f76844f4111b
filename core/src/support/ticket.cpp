// SPDX-License-Identifier: Apache-2.0
#include "support/ticket.hpp"

#include <chrono>

namespace datapath {

namespace {

template <class Predicate>
bool wait_until(std::condition_variable& changed,
                std::unique_lock<std::mutex>& lock,
                std::uint64_t timeout,
                Predicate predicate)
{
  // A time point past the clock's range would wrap and end the wait at once.
  constexpr std::uint64_t forever = std::uint64_t{1} << 62U;
  if (timeout >= forever) {
    changed.wait(lock, predicate);
    return true;
  }
  return changed.wait_for(
    lock, std::chrono::nanoseconds{static_cast<std::int64_t>(timeout)}, predicate);
}

}  // namespace

void Ticket::enter_device(Device* device, std::uint64_t event)
{
  {
    std::lock_guard const lock{mutex_};
    if (phase_ != Phase::open) { return; }
    phase_  = Phase::device;
    device_ = device;
    event_  = event;
  }
  changed_.notify_all();
}

void Ticket::complete(std::uint64_t nbytes)
{ end(std::nullopt, nbytes); }

void Ticket::fail(ErrorInfo error)
{ end(std::move(error), 0); }

void Ticket::end(std::optional<ErrorInfo> error, std::uint64_t nbytes)
{
  std::vector<std::function<void(Ticket const&)>> continuations;
  {
    std::lock_guard const lock{mutex_};
    if (phase_ == Phase::ended) { return; }
    phase_  = Phase::ended;
    device_ = nullptr;
    nbytes_ = nbytes;
    error_  = std::move(error);
    continuations.swap(continuations_);
    // Notified under the lock: the waiter may hold the last reference and destroy this at once.
    changed_.notify_all();
  }
  for (auto const& continuation : continuations) { continuation(*this); }
}

dp_status Ticket::state() const
{
  std::lock_guard const lock{mutex_};
  if (phase_ != Phase::ended) { return DP_PENDING; }
  return error_ ? error_->status : DP_OK;
}

bool Ticket::wait(std::uint64_t timeout) const
{
  std::unique_lock lock{mutex_};
  return wait_until(changed_, lock, timeout, [this] { return phase_ == Phase::ended; });
}

bool Ticket::wait_host_part(std::uint64_t timeout) const
{
  std::unique_lock lock{mutex_};
  return wait_until(changed_, lock, timeout, [this] { return phase_ != Phase::open; });
}

std::uint64_t Ticket::bytes() const
{
  std::lock_guard const lock{mutex_};
  if (error_) { throw Error{*error_}; }
  return nbytes_;
}

std::optional<ErrorInfo> Ticket::error() const
{
  std::lock_guard const lock{mutex_};
  return error_;
}

bool Ticket::with_event(std::function<void(Device&, std::uint64_t)> const& body) const
{
  Device* device = nullptr;
  {
    std::lock_guard const lock{mutex_};
    if (phase_ != Phase::device) { return false; }
    device = device_;
    ++event_users_;
  }
  struct Use {
    Ticket const& ticket;
    ~Use() { ticket.event_used(); }
  } const use{*this};
  body(*device, event_);
  return true;
}

void Ticket::event_used() const noexcept
{
  std::function<void()> release;
  {
    std::lock_guard const lock{mutex_};
    if (--event_users_ == 0) { release.swap(release_event_); }
  }
  if (release) { release(); }
}

void Ticket::when_event_unused(std::function<void()> release)
{
  {
    std::lock_guard const lock{mutex_};
    if (event_users_ != 0) {
      release_event_ = std::move(release);
      return;
    }
  }
  release();
}

void Ticket::on_end(std::function<void(Ticket const&)> continuation)
{
  {
    std::lock_guard const lock{mutex_};
    if (phase_ != Phase::ended) {
      continuations_.push_back(std::move(continuation));
      return;
    }
  }
  continuation(*this);
}

}  // namespace datapath
