// SPDX-License-Identifier: Apache-2.0
#include "io_support.hpp"

#include <sys/wait.h>

#include <cstdio>

namespace datapath::io_testing {

int run_in_child(std::function<int()> const& body)
{
  std::fflush(nullptr);
  auto const child = ::fork();
  if (child == 0) {
    int code = 99;
    try {
      code = body();
    } catch (std::exception const& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
    }
    // No destructors of the parent's objects, no exit handlers of the test program.
    ::_exit(code);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace datapath::io_testing
