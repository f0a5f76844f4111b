// SPDX-License-Identifier: Apache-2.0
#include "update_cpu.hpp"

#include "thread_pool.hpp"
#include "update_body.hpp"

#include <algorithm>

namespace pytorch_direct {
namespace {

// Below this, handing work to other threads costs more than it saves.
constexpr std::int64_t kNumbersPerPart = 1 << 14;

}  // namespace

void update_cpu(UpdateArguments const& arguments, Number number, Rule rule, int threads)
{
  auto const wanted = arguments.count * arguments.width / kNumbersPerPart;
  auto const parts  = std::clamp<std::int64_t>(wanted, 1, 8 * std::max(1, threads));
  with_update(number, rule, [&]<class T, Rule R>() {
    parallel_chunks(parts, threads, [&](std::int64_t part) {
      // A run belongs to the part in which it begins.
      auto const end = arguments.count * (part + 1) / parts;
      for (auto i = arguments.count * part / parts; i < end; ++i) {
        auto const run = run_end(arguments, i);
        if (run > i) { update_row<T, R>(arguments, i, run, 0, 1); }
      }
    });
  });
}

void update_emulated(UpdateArguments const& arguments,
                     Number number,
                     Rule rule,
                     std::int64_t threads)
{
  with_update(number, rule, [&]<class T, Rule R>() {
    for (std::int64_t thread = 0; thread < threads; ++thread) {
      update_rows<T, R>(arguments, kUpdateLaneBits, thread, threads);
    }
  });
}

}  // namespace pytorch_direct
