// SPDX-License-Identifier: Apache-2.0
#include "graveyard.hpp"

#include <pthread.h>

#include <atomic>
#include <thread>

namespace datapath::python {

namespace {

std::atomic<Kept*> buried{nullptr};
std::atomic<bool> asked{false};
std::atomic<bool> closed{false};
std::atomic<int> asking{0};

// A thread that asks at the moment of a fork is not there in the child: nobody would count it out again.
[[maybe_unused]] int const reset_in_child =
  ::pthread_atfork(nullptr, nullptr, [] { asking.store(0); });

int drain_when_asked(void* /*unused*/)
{
  asked.store(false);
  drain_graveyard();
  return 0;
}

/// Asks the interpreter to drain soon. It may be called from any thread, but not once the interpreter is
/// gone: close_graveyard waits for the calls in progress and stops the later ones.
void ask_to_drain() noexcept
{
  asking.fetch_add(1);
  if (!closed.load() && !asked.exchange(true) &&
      Py_AddPendingCall(drain_when_asked, nullptr) != 0) {
    // The interpreter's queue is full; the next call into the library drains.
    asked.store(false);
  }
  asking.fetch_sub(1);
}

}  // namespace

Kept::~Kept()
{
  for (auto& view : views_) { PyBuffer_Release(&view); }
}

void Kept::take(Kept& other)
{
  for (auto& object : other.objects_) { objects_.push_back(std::move(object)); }
  other.objects_.clear();
  views_.splice_after(views_.before_begin(), other.views_);
}

void bury(Kept* kept) noexcept
{
  auto* head = buried.load();
  do {
    kept->next_ = head;
  } while (!buried.compare_exchange_weak(head, kept));
  ask_to_drain();
}

void drain_graveyard() noexcept
{
  if (closed.load() || buried.load(std::memory_order_relaxed) == nullptr) { return; }
  auto* kept = buried.exchange(nullptr);
  // Letting go may run any Python code, which must not see or lose an error of the caller's.
  py::error_scope const error_of_caller;
  while (kept != nullptr) { delete std::exchange(kept, kept->next_); }
}

void close_graveyard() noexcept
{
  closed.store(true);
  while (asking.load() != 0) { std::this_thread::yield(); }
}

bool interpreter_ends() noexcept
{ return closed.load(); }

}  // namespace datapath::python
