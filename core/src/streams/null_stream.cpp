// SPDX-License-Identifier: Apache-2.0
#include "streams/null_stream.hpp"

#include "shim/cuda_types.hpp"
#include "support/error.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace datapath {

namespace {

[[noreturn]] void fail_as_driver(cuda::Result result, std::string message)
{ throw Error{ErrorInfo{DP_ERR_CUDA, "null device: " + std::move(message), {}, -1, 0, result}}; }

void* pointer_to(std::uint64_t address)
{ return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)); }

}  // namespace

NullStream::NullStream(NullClock const& clock) : clock_{clock}, thread_{[this] { run(); }} {}

NullStream::~NullStream()
{
  close();
  thread_.join();
}

bool NullStream::capturing_locked() const
{ return capture_ && capture_->active.load(std::memory_order_acquire); }

void NullStream::enqueue_locked(NullOperation const& operation)
{
  expects(!closed_, "null device: the stream was destroyed while in use");
  queue_.push_back(operation);
  ++submitted_;
  work_.notify_one();
}

void NullStream::submit(NullOperation const& operation)
{
  std::lock_guard const lock{mutex_};
  if (!capturing_locked()) { enqueue_locked(operation); }
}

void NullStream::record(NullEvent& event)
{
  std::lock_guard const lock{mutex_};
  if (capturing_locked()) {
    event.record_captured(capture_);
    return;
  }
  NullOperation operation{.kind = NullOperation::Kind::record};
  operation.event      = &event;
  operation.generation = event.begin_record();
  enqueue_locked(operation);
}

void NullStream::wait_event(NullEvent& event)
{
  auto capture          = event.capture();
  auto const in_capture = capture && capture->active.load(std::memory_order_acquire);
  if (capture && !in_capture) {
    fail_as_driver(cuda::error_captured_event,
                   "the event was last recorded inside a graph capture that has ended");
  }
  std::lock_guard const lock{mutex_};
  if (capturing_locked()) {
    if (in_capture && capture != capture_) {
      fail_as_driver(cuda::error_stream_capture_merge,
                     "the event belongs to another graph capture");
    }
    if (!in_capture && event.recorded() != 0) {
      fail_as_driver(cuda::error_stream_capture_isolation,
                     "a stream that captures cannot wait for work outside its graph");
    }
    return;
  }
  if (in_capture) {
    capture_        = std::move(capture);
    capture_origin_ = false;
    return;
  }
  NullOperation operation{.kind = NullOperation::Kind::wait_event};
  operation.event      = &event;
  operation.generation = event.recorded();
  enqueue_locked(operation);
}

void NullStream::synchronize()
{
  std::unique_lock lock{mutex_};
  if (capturing_locked()) {
    fail_as_driver(cuda::error_stream_capture_unsupported,
                   "synchronize: the stream records a graph");
  }
  auto const target = submitted_;
  done_.wait(lock, [&] { return completed_ >= target; });
}

void NullStream::begin_capture()
{
  std::lock_guard const lock{mutex_};
  if (capturing_locked()) {
    fail_as_driver(cuda::error_illegal_state, "begin capture: the stream captures already");
  }
  capture_        = std::make_shared<NullCapture>();
  capture_origin_ = true;
}

void NullStream::end_capture()
{
  std::lock_guard const lock{mutex_};
  if (!capturing_locked()) {
    fail_as_driver(cuda::error_illegal_state, "end capture: the stream does not capture");
  }
  if (!capture_origin_) {
    fail_as_driver(cuda::error_stream_capture_unmatched,
                   "end capture: the capture was begun on another stream");
  }
  capture_->active.store(false, std::memory_order_release);
  capture_.reset();
}

bool NullStream::is_capturing() const
{
  std::lock_guard const lock{mutex_};
  return capturing_locked();
}

void NullStream::close()
{
  std::lock_guard const lock{mutex_};
  closed_ = true;
  work_.notify_one();
}

bool NullStream::finished() const
{
  std::lock_guard const lock{mutex_};
  return finished_;
}

void NullStream::run()
{
  std::unique_lock lock{mutex_};
  while (true) {
    work_.wait(lock, [this] { return closed_ || !queue_.empty(); });
    if (queue_.empty()) { break; }
    auto const operation = queue_.front();
    queue_.pop_front();
    lock.unlock();
    execute(operation);
    lock.lock();
    ++completed_;
    done_.notify_all();
  }
  finished_ = true;
}

void NullStream::execute(NullOperation const& operation)
{
  using enum NullOperation::Kind;
  // Records still pass, or other streams would wait for ever.
  if (aborted_ && operation.kind != record) { return; }
  switch (operation.kind) {
    case copy:
      this->copy(operation);
      break;
    case fill:
      std::memset(
        pointer_to(operation.destination), static_cast<int>(operation.value), operation.nbytes);
      break;
    case record:
      operation.event->pass(operation.generation, aborted_);
      break;
    case wait_event:
      aborted_ = !operation.event->wait(operation.generation);
      break;
    case write_value:
      std::atomic_ref{*static_cast<std::uint32_t*>(pointer_to(operation.destination))}.store(
        operation.value, std::memory_order_release);
      break;
    case wait_value:
      aborted_ = !wait_value_reached(operation);
      break;
  }
}

void NullStream::copy(NullOperation const& operation) const
{
  auto const start = std::chrono::steady_clock::now();
  std::memmove(pointer_to(operation.destination), pointer_to(operation.source), operation.nbytes);
  auto const delay = clock_.copy_delay.load(std::memory_order_relaxed);
  if (delay != 0) {
    std::this_thread::sleep_until(start +
                                  std::chrono::nanoseconds{static_cast<std::int64_t>(delay)});
  }
}

bool NullStream::wait_value_reached(NullOperation const& operation) const
{
  std::atomic_ref const word{*static_cast<std::uint32_t*>(pointer_to(operation.destination))};
  auto pause = std::chrono::microseconds{1};
  for (std::uint32_t round = 0; word.load(std::memory_order_acquire) != operation.value; ++round) {
    if (clock_.stopping.load(std::memory_order_acquire)) { return false; }
    if (round < 64) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds{100});
    }
  }
  return true;
}

}  // namespace datapath
