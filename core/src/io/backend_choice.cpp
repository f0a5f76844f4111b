// SPDX-License-Identifier: Apache-2.0
#include "io/backend_choice.hpp"

#include "io/threads_backend.hpp"
#include "support/error.hpp"
#include "support/log.hpp"

namespace datapath {

std::unique_ptr<Backend> choose_backend(std::string_view name,
                                        BackendOptions const& options,
                                        std::vector<std::string>&)
{
  if (name == "auto" || name == "threads") { return std::make_unique<ThreadsBackend>(options); }
  fail(DP_ERR_INVALID,
       "the backend '" + std::string{name} + "' is none of auto, uring, threads, cufile");
}

std::string why_not(std::string_view)
{ return {}; }

}  // namespace datapath
