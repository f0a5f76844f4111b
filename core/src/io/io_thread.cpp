// SPDX-License-Identifier: Apache-2.0
#include "io/io_thread.hpp"

#include <pthread.h>
#include <signal.h>

#include <ctime>
#include <utility>

namespace datapath {

namespace {

sigset_t only_file_size_signal()
{
  sigset_t set{};
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGXFSZ);
  return set;
}

bool is_pending(int signal)
{
  sigset_t pending{};
  return ::sigpending(&pending) == 0 && ::sigismember(&pending, signal) == 1;
}

/// All signals are blocked while a thread is created, since it inherits the mask.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked()
  {
    sigset_t all{};
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~AllSignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  AllSignalsBlocked(AllSignalsBlocked const&)            = delete;
  AllSignalsBlocked& operator=(AllSignalsBlocked const&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

std::thread start_io_thread(std::string name, std::function<void()> body)
{
  AllSignalsBlocked const blocked;
  return std::thread{[name = std::move(name), body = std::move(body)] {
    ::pthread_setname_np(::pthread_self(), name.c_str());
    body();
  }};
}

FileSizeSignalGuard::FileSizeSignalGuard()
{
  was_pending_   = is_pending(SIGXFSZ);
  auto const set = only_file_size_signal();
  sigset_t before{};
  ::pthread_sigmask(SIG_BLOCK, &set, &before);
  was_blocked_ = ::sigismember(&before, SIGXFSZ) == 1;
}

FileSizeSignalGuard::~FileSizeSignalGuard()
{
  auto const set = only_file_size_signal();
  if (!was_pending_ && is_pending(SIGXFSZ)) {
    timespec const at_once{};
    (void)::sigtimedwait(&set, nullptr, &at_once);
  }
  if (!was_blocked_) { ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr); }
}

}  // namespace datapath
