// SPDX-License-Identifier: Apache-2.0
#include "io/threads_backend.hpp"

#include "io/io_thread.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace datapath {

namespace {

/// Set on the threads of a pool, to tell them from others.
thread_local ThreadsBackend const* pool_of_thread = nullptr;

/// How long `stop` waits for a thread that does not come back from a call.
constexpr std::chrono::milliseconds stop_patience{200};

}  // namespace

ThreadsBackend::ThreadsBackend(BackendOptions const& options)
  : max_inflight_bytes_{options.max_inflight_bytes}
{
  auto const count = std::min(options.threads, options.depth);
  threads_.reserve(count);
  try {
    for (std::uint32_t i = 0; i < count; ++i) {
      threads_.push_back(start_io_thread("dp-pool-" + std::to_string(i), [this] { work(); }));
      std::lock_guard const lock{mutex_};
      ++alive_;
    }
  } catch (...) {
    join_idle();
    throw;
  }
}

ThreadsBackend::~ThreadsBackend()
{ join_idle(); }

void ThreadsBackend::join_idle() noexcept
{
  {
    std::lock_guard const lock{mutex_};
    stopping_ = true;
    wake_.notify_all();
  }
  for (auto& thread : threads_) { thread.join(); }
  threads_.clear();
}

void ThreadsBackend::submit(IoList pieces)
{
  std::uint32_t wakes = 0;
  load_.fetch_add(pieces.size(), std::memory_order_relaxed);
  {
    std::lock_guard const lock{mutex_};
    if (!stopping_) {
      wakes = static_cast<std::uint32_t>(std::min<std::size_t>(idle_, pieces.size()));
      queue_.append(pieces);
    }
  }
  for (; wakes != 0; --wakes) { wake_.notify_one(); }
  // Left over only where stopping refused them.
  while (auto* const piece = pieces.pop_front()) { attempt_ended(*piece, -ECANCELED); }
}

IoPiece* ThreadsBackend::take() noexcept
{
  auto const* const first = queue_.front();
  if (first == nullptr) { return nullptr; }
  auto const nbytes = first->attempt_bytes();
  // One piece always goes, however large it is.
  if (inflight_bytes_ != 0 && inflight_bytes_ + nbytes > max_inflight_bytes_) { return nullptr; }
  inflight_bytes_ += nbytes;
  return queue_.pop_front();
}

void ThreadsBackend::work() noexcept
{
  pool_of_thread = this;
  std::unique_lock lock{mutex_};
  while (true) {
    auto* const piece = take();
    if (piece == nullptr) {
      if (stopping_ && queue_.empty()) { break; }
      ++idle_;
      wake_.wait(lock);
      --idle_;
      continue;
    }
    auto const nbytes = piece->attempt_bytes();
    lock.unlock();
    auto const result = attempt(*piece);
    load_.fetch_sub(1, std::memory_order_relaxed);
    attempts_ended_.fetch_add(1, std::memory_order_relaxed);
    attempt_ended(*piece, result);
    lock.lock();
    inflight_bytes_ -= nbytes;
    // The bytes given back may let waiting workers go on, too.
    if (idle_ != 0 && queue_.size() > 1) { wake_.notify_one(); }
  }
  if (--alive_ == 0) { ended_.notify_all(); }
}

std::int64_t ThreadsBackend::attempt(IoPiece const& piece) noexcept
{
  auto const offset = static_cast<off_t>(piece.offset);
  auto const moved  = piece.op == IoOp::read
                        ? ::pread(piece.fd(), piece.pointer, piece.attempt_bytes(), offset)
                        : ::pwrite(piece.fd(), piece.pointer, piece.attempt_bytes(), offset);
  return moved < 0 ? -static_cast<std::int64_t>(errno) : moved;
}

bool ThreadsBackend::stop()
{
  std::lock_guard const one{stop_mutex_};
  bool all_ended = false;
  {
    std::unique_lock lock{mutex_};
    stopping_ = true;
    wake_.notify_all();
    all_ended = ended_.wait_for(lock, stop_patience, [this] { return alive_ == 0; });
  }
  for (auto& thread : threads_) { all_ended ? thread.join() : thread.detach(); }
  threads_.clear();
  return all_ended;
}

bool ThreadsBackend::on_own_thread() const noexcept
{ return pool_of_thread == this; }

std::uint64_t ThreadsBackend::attempts_ended() const noexcept
{ return attempts_ended_.load(std::memory_order_relaxed); }

void ThreadsBackend::describe(JsonWriter& json) const
{
  std::lock_guard const lock{mutex_};
  json.field("workers", alive_)
    .field("queued", static_cast<std::uint64_t>(queue_.size()))
    .field("inflight_bytes", inflight_bytes_);
}

}  // namespace datapath
