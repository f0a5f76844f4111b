// SPDX-License-Identifier: Apache-2.0
#include "sampling_emulated.hpp"

#include "sampling_hop.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace pytorch_direct {
namespace {

class HostRunner {
 public:
  explicit HostRunner(EmulatedGrid const& grid)
    : order_(static_cast<std::size_t>(grid.threads)), random_{grid.order}
  { std::iota(order_.begin(), order_.end(), std::int64_t{0}); }

  template <auto Body, class Arguments>
  void run(Arguments const& arguments, std::int64_t /*items*/)
  {
    shuffle();
    auto const threads = static_cast<std::int64_t>(order_.size());
    for (auto const thread : order_) { Body(arguments, thread, threads); }
  }

  void sum(std::int64_t* list, std::int64_t count)
  { std::exclusive_scan(list, list + count, list, std::int64_t{0}); }

 private:
  void shuffle()
  {
    for (auto i = order_.size(); i > 1; --i) {
      auto const word = philox(random_, i, kernel_).word[0];
      std::swap(order_[i - 1], order_[word % i]);
    }
    ++kernel_;
  }

  std::vector<std::int64_t> order_;
  std::uint64_t random_;
  std::uint64_t kernel_ = 0;
};

}  // namespace

void insert_seeds_emulated(SeedArguments const& arguments, EmulatedGrid const& grid)
{
  HostRunner runner{grid};
  insert_seeds(runner, arguments);
}

void count_hop_emulated(HopArguments const& arguments, EmulatedGrid const& grid)
{
  HostRunner runner{grid};
  count_hop(runner, arguments);
}

void take_hop_emulated(HopArguments const& arguments, EmulatedGrid const& grid)
{
  HostRunner runner{grid};
  take_hop(runner, arguments);
}

}  // namespace pytorch_direct
