// SPDX-License-Identifier: Apache-2.0
#include "io/uring_ring.hpp"

#if DATAPATH_HAVE_LIBURING

#include "io/io_thread.hpp"
#include "io/uring_setup.hpp"
#include "support/error.hpp"
#include "support/log.hpp"

#include <liburing.h>

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <future>

namespace datapath {

namespace {

thread_local UringRing const* ring_of_thread = nullptr;

constexpr std::chrono::seconds stop_patience{10};
constexpr std::size_t reap_at_once = 64;

/// Such a ring shows completions only to a call that fetches them.
constexpr std::uint32_t deferred_completions = IORING_SETUP_DEFER_TASKRUN;

}  // namespace

/// Lives on the constructor's stack until the thread has said how the set-up went.
struct UringRing::Setup {
  std::promise<int> result;
  char const* step{""};
};

UringRing::UringRing(std::uint32_t number, std::uint32_t depth, std::uint64_t max_inflight_bytes)
  : depth_{depth}, max_inflight_bytes_{max_inflight_bytes}, ring_{std::make_unique<io_uring>()}
{
  event_ = ::eventfd(0, EFD_CLOEXEC);
  if (event_ < 0) { fail_system(errno, "eventfd"); }
  Setup setup;
  auto result = setup.result.get_future();
  try {
    thread_ = start_io_thread("dp-ring-" + std::to_string(number), [this, &setup] { run(setup); });
  } catch (...) {
    ::close(event_);
    throw;
  }
  if (int const error = result.get(); error != 0) {
    thread_.join();
    ::close(event_);
    fail(DP_ERR_UNSUPPORTED, explain_ring_error(-error, setup.step));
  }
}

UringRing::~UringRing()
{
  if (stop()) { ::close(event_); }
}

void UringRing::run(Setup& setup) noexcept
{
  ring_of_thread = this;
  // One entry beyond the depth is for the wake-up.
  int const error = set_up_ring(*ring_, depth_ + 1, setup.step);
  flags_          = ring_->flags;
  setup.result.set_value(error);
  if (error != 0) { return; }
  serve();
  // The kernel writes into this ring for as long as it holds pieces.
  if (lost() == 0) { tear_down_ring(*ring_); }
  std::lock_guard const lock{mutex_};
  ended_ = true;
  ended_changed_.notify_all();
}

void UringRing::submit(IoList& pieces)
{
  bool must_wake = false;
  load_.fetch_add(pieces.size(), std::memory_order_relaxed);
  {
    std::lock_guard const lock{mutex_};
    if (!stopping_) {
      incoming_.append(pieces);
      must_wake = sleeping_;
      sleeping_ = false;
    }
  }
  if (must_wake) { wake(); }
  // Left over only where stopping refused them.
  while (auto* const piece = pieces.pop_front()) {
    load_.fetch_sub(1, std::memory_order_relaxed);
    attempt_ended(*piece, -ECANCELED);
  }
}

void UringRing::wake() noexcept
{
  std::uint64_t const one = 1;
  while (::write(event_, &one, sizeof(one)) < 0 && errno == EINTR) {}
}

void UringRing::serve() noexcept
{
  while (true) {
    take_incoming();
    if (broken_ != 0) { fail_unsubmitted(); }
    fill();
    if ((inflight_ == 0 || lost() != 0) && queue_.empty()) {
      std::lock_guard const lock{mutex_};
      if (stopping_ && incoming_.empty()) { return; }
    }
    enter();
    reap();
  }
}

void UringRing::take_incoming()
{
  std::lock_guard const lock{mutex_};
  sleeping_ = false;
  queue_.append(incoming_);
}

void UringRing::arm_wake()
{
  if (wake_armed_) { return; }
  auto* const entry = ::io_uring_get_sqe(ring_.get());
  if (entry == nullptr) { return; }
  ::io_uring_prep_read(entry, event_, &wake_value_, sizeof(wake_value_), 0);
  ::io_uring_sqe_set_data(entry, nullptr);
  wake_armed_ = true;
}

void UringRing::fill()
{
  if (broken_ != 0) { return; }
  arm_wake();
  while (auto* const piece = queue_.front()) {
    auto const nbytes = piece->attempt_bytes();
    if (inflight_ >= depth_) { return; }
    // One piece always goes, however large it is.
    if (inflight_ != 0 && inflight_bytes_ + nbytes > max_inflight_bytes_) { return; }
    auto* const entry = ::io_uring_get_sqe(ring_.get());
    if (entry == nullptr) { return; }
    (void)queue_.pop_front();
    auto const length = static_cast<unsigned>(nbytes);
    if (piece->op == IoOp::read) {
      ::io_uring_prep_read(entry, piece->fd(), piece->pointer, length, piece->offset);
    } else {
      ::io_uring_prep_write(entry, piece->fd(), piece->pointer, length, piece->offset);
    }
    ::io_uring_sqe_set_data(entry, piece);
    ++inflight_;
    inflight_bytes_ += nbytes;
  }
}

void UringRing::enter() noexcept
{
  if (broken_ != 0) {
    fetch_completions();
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
    return;
  }
  {
    std::lock_guard const lock{mutex_};
    if (!incoming_.empty() && queue_.empty() && inflight_ < depth_) { return; }
    // With no room left a wake-up would be for nothing: a completion makes room and wakes as well.
    sleeping_ = queue_.empty();
  }
  int const result = ::io_uring_submit_and_wait(ring_.get(), 1);
  if (result >= 0 || result == -EINTR) { return; }
  if (result == -EAGAIN || result == -EBUSY) {
    // The kernel is short of memory or has completions to flush: reap, then try again.
    if (::io_uring_cq_ready(ring_.get()) == 0) {
      (void)::io_uring_get_events(ring_.get());
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return;
  }
  break_down(-result);
}

void UringRing::reap() noexcept
{
  struct Ended {
    IoPiece* piece;
    std::int64_t result;
  };
  std::array<Ended, reap_at_once> ended;
  std::size_t count  = 0;
  unsigned seen      = 0;
  unsigned head      = 0;
  io_uring_cqe* item = nullptr;
  io_uring_for_each_cqe(ring_.get(), head, item)
  {
    if (count == ended.size()) { break; }
    ++seen;
    auto* const piece = static_cast<IoPiece*>(::io_uring_cqe_get_data(item));
    if (piece == nullptr) {
      wake_armed_ = false;
    } else {
      ended[count++] = {piece, item->res};
    }
  }
  ::io_uring_cq_advance(ring_.get(), seen);
  if (count == 0) { return; }
  inflight_ -= static_cast<std::uint32_t>(count);
  for (std::size_t i = 0; i < count; ++i) { inflight_bytes_ -= ended[i].piece->attempt_bytes(); }
  load_.fetch_sub(count, std::memory_order_relaxed);
  attempts_ended_.fetch_add(count, std::memory_order_relaxed);
  // Only now: each may submit again, end its batch and free it.
  for (std::size_t i = 0; i < count; ++i) { attempt_ended(*ended[i].piece, ended[i].result); }
}

void UringRing::break_down(int os_errno) noexcept
{
  broken_ = os_errno;
  log(LogLevel::error,
      "io.uring",
      "io_uring_enter failed for good, all requests of this ring fail: errno " +
        std::to_string(os_errno));
  // What was filled in and not taken by the kernel never ends by itself.
  auto& submission = ring_->sq;
  auto const mask  = *submission.kring_mask;
  for (auto at = *submission.khead; at != submission.sqe_tail; ++at) {
    auto* const piece = reinterpret_cast<IoPiece*>(submission.sqes[at & mask].user_data);
    if (piece == nullptr) { continue; }
    --inflight_;
    inflight_bytes_ -= piece->attempt_bytes();
    queue_.push_back(*piece);
  }
}

void UringRing::fetch_completions() noexcept
{
  // What the kernel took before still ends. Most rings show it without another call.
  if ((flags_ & deferred_completions) == 0 || inflight_ == 0 || lost() != 0) { return; }
  int const result = ::io_uring_get_events(ring_.get());
  if (result >= 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY) { return; }
  lost_.store(inflight_, std::memory_order_relaxed);
  log(LogLevel::error,
      "io.uring",
      std::to_string(inflight_) +
        " requests are lost, since their ends cannot be fetched from the kernel (errno " +
        std::to_string(-result) +
        "): their tickets stay pending and their memory is kept for good, since a drive may still "
        "write to it");
}

void UringRing::fail_unsubmitted() noexcept
{
  while (auto* const piece = queue_.pop_front()) {
    load_.fetch_sub(1, std::memory_order_relaxed);
    attempts_ended_.fetch_add(1, std::memory_order_relaxed);
    attempt_ended(*piece, -broken_);
  }
}

bool UringRing::stop()
{
  if (!thread_.joinable()) { return ended_ && lost() == 0; }
  bool ended = false;
  {
    std::unique_lock lock{mutex_};
    stopping_ = true;
    wake();
    ended = ended_changed_.wait_for(lock, stop_patience, [this] { return ended_; });
  }
  ended ? thread_.join() : thread_.detach();
  return ended && lost() == 0;
}

bool UringRing::on_own_thread() const noexcept
{ return ring_of_thread == this; }

}  // namespace datapath

#endif
