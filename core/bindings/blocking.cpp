// SPDX-License-Identifier: Apache-2.0
#include "blocking.hpp"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

namespace datapath::python {

namespace {

/// Shared by the caller, who may leave early, and by the thread that does the work.
struct Progress {
  std::mutex mutex;
  std::condition_variable changed;
  bool ended{false};
  std::exception_ptr error;
};

}  // namespace

void check_signals()
{
  if (PyErr_CheckSignals() != 0) { throw py::error_already_set{}; }
}

void run_interruptibly(std::function<void()> body)
{
  auto const progress = std::make_shared<Progress>();
  std::thread{[progress, body = std::move(body)]() mutable {
    std::exception_ptr error;
    try {
      body();
    } catch (...) {
      error = std::current_exception();
    }
    body = nullptr;
    std::lock_guard const lock{progress->mutex};
    progress->error = std::move(error);
    progress->ended = true;
    progress->changed.notify_all();
  }}.detach();
  while (true) {
    {
      GilReleased const released;
      std::unique_lock lock{progress->mutex};
      if (progress->changed.wait_for(
            lock, std::chrono::nanoseconds{signal_slice}, [&] { return progress->ended; })) {
        break;
      }
    }
    check_signals();
  }
  if (progress->error) { std::rethrow_exception(progress->error); }
}

}  // namespace datapath::python
