// SPDX-License-Identifier: Apache-2.0
#include "io/backend_choice.hpp"

#include "io/cufile_backend.hpp"
#include "io/threads_backend.hpp"
#include "io/uring_backend.hpp"
#include "support/error.hpp"
#include "support/log.hpp"

namespace datapath {

namespace {

std::unique_ptr<Backend> make_uring([[maybe_unused]] BackendOptions const& options)
{
#if DATAPATH_HAVE_LIBURING
  return std::make_unique<UringBackend>(options);
#else
  fail(DP_ERR_UNSUPPORTED,
       "this build has no io_uring backend; install liburing >= 2.3 with its static library and "
       "build again");
#endif
}

std::unique_ptr<Backend> make_by_name(std::string_view name, BackendOptions const& options)
{
  if (name == "uring") { return make_uring(options); }
  if (name == "cufile") { return std::make_unique<CufileBackend>(options); }
  if (name == "threads") { return std::make_unique<ThreadsBackend>(options); }
  fail(DP_ERR_INVALID,
       "the backend '" + std::string{name} + "' is none of auto, uring, threads, cufile");
}

/// Says first which backend it is that cannot serve: the reason may speak of a driver only.
std::unique_ptr<Backend> make_named(std::string_view name, BackendOptions const& options)
{
  try {
    return make_by_name(name, options);
  } catch (Error const& error) {
    auto info = error.info();
    if (info.status == DP_ERR_UNSUPPORTED) {
      info.message = "the backend '" + std::string{name} + "' cannot serve: " + info.message;
    }
    throw Error{std::move(info)};
  }
}

}  // namespace

std::unique_ptr<Backend> choose_backend(std::string_view name,
                                        BackendOptions const& options,
                                        std::vector<std::string>& reasons)
{
  if (name != "auto") { return make_named(name, options); }
  // cuFile serves device memory only where it is asked for: host memory, which the library stages
  // through, goes faster through a ring.
  try {
    return make_uring(options);
  } catch (std::exception const& error) {
    auto const reason = std::string{"uring cannot serve: "} + error.what();
    log_once(LogLevel::warning, "io.engine", reason + "; the threads backend takes its place");
    reasons.push_back(reason);
  }
  return make_by_name("threads", options);
}

std::string why_not(std::string_view name)
{
  BackendOptions least;
  least.depth   = 1;
  least.threads = 1;
  try {
    auto backend = make_by_name(name, least);
    // A thread that has not ended yet still uses it: then it is leaked.
    if (!backend->stop()) { (void)backend.release(); }
    return {};
  } catch (std::exception const& error) {
    return error.what();
  }
}

}  // namespace datapath
