// SPDX-License-Identifier: Apache-2.0
/// @file
/// The last hops that a scheduler carried out: what moved where and when.
#pragma once

#include "support/json.hpp"

#include <array>
#include <cstdint>
#include <mutex>

namespace datapath {

/// One hop of one piece. Times are CLOCK_MONOTONIC as the host saw them.
struct TraceRecord {
  std::uint64_t transfer{0};  ///< Sequence number of the submission.
  std::uint64_t offset{0};    ///< Of the piece in its transfer.
  std::uint64_t nbytes{0};
  std::uint64_t start{0};
  std::uint64_t end{0};
  std::uint8_t lane{0};
  bool failed{false};
};

class Trace {
 public:
  void add(TraceRecord const& record);
  /// Writes the array "trace", oldest first.
  void describe(JsonWriter& json) const;

 private:
  static constexpr std::size_t capacity = 1024;
  mutable std::mutex mutex_;
  std::array<TraceRecord, capacity> records_{};
  std::uint64_t count_{0};
};

}  // namespace datapath
