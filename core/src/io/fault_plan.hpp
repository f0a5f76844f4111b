// SPDX-License-Identifier: Apache-2.0
/// @file
/// A plan of faults for tests, read from text; docs/core/faults.md has the grammar. It decides, and
/// faulty_backend carries out.
#pragma once

#include "io/io_piece.hpp"

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace datapath {

enum class FaultKind : std::uint8_t { error, shortened, slow, reorder, lost, kill };

struct FaultRule {
  FaultKind kind{FaultKind::error};
  bool on_read{true};
  bool on_write{true};
  int os_errno{0};
  // Conditions: a request has to meet all that are given.
  std::uint64_t after{0};
  std::uint64_t after_bytes{0};
  std::uint64_t every{0};
  std::uint64_t nth{0};
  std::uint64_t times{0};
  double probability{1.0};
  std::string path;
  // What slow and reorder do.
  std::uint64_t delay_ns{0};
  std::uint64_t window{0};
  // State.
  std::uint64_t random{0};
  std::uint64_t seen{0};
  std::uint64_t seen_bytes{0};
  std::uint64_t fired{0};
};

/// What befalls one attempt.
struct Verdict {
  int os_errno{0};
  std::uint64_t delay_ns{0};
  std::uint64_t window{0};
  bool shortened{false};
  bool lost{false};
  bool kill{false};
};

class FaultPlan {
 public:
  /// Throws DP_ERR_INVALID naming the rule that it cannot read.
  explicit FaultPlan(std::string text);

  /// Every call counts as one attempt. From any thread.
  [[nodiscard]] Verdict judge(IoPiece const& piece);
  [[nodiscard]] std::string const& text() const noexcept { return text_; }

 private:
  std::string text_;
  std::mutex mutex_;
  std::vector<FaultRule> rules_;
};

}  // namespace datapath
