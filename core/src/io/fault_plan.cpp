// SPDX-License-Identifier: Apache-2.0
#include "io/fault_plan.hpp"

#include "support/error.hpp"
#include "support/settings.hpp"

#include <array>
#include <cerrno>
#include <charconv>
#include <utility>

namespace datapath {

namespace {

constexpr std::array<std::pair<std::string_view, int>, 9> error_faults{{{"enospc", ENOSPC},
                                                                        {"edquot", EDQUOT},
                                                                        {"eio", EIO},
                                                                        {"eintr", EINTR},
                                                                        {"eagain", EAGAIN},
                                                                        {"efbig", EFBIG},
                                                                        {"einval", EINVAL},
                                                                        {"enodev", ENODEV},
                                                                        {"etimedout", ETIMEDOUT}}};
constexpr std::array<std::pair<std::string_view, FaultKind>, 5> other_faults{
  {{"short", FaultKind::shortened},
   {"slow", FaultKind::slow},
   {"reorder", FaultKind::reorder},
   {"lost", FaultKind::lost},
   {"kill", FaultKind::kill}}};

/// About eleven days: no test waits as long, and nanoseconds of it fit a word.
constexpr double longest_ms = 1e9;

[[noreturn]] void reject(std::string_view rule, std::string const& why)
{
  fail(DP_ERR_INVALID,
       "fault plan: '" + std::string{rule} + "': " + why +
         "; a rule reads op:fault@key=value,key=value as in write:enospc@after=10");
}

std::string_view trim(std::string_view text)
{
  auto const first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) { return {}; }
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

/// The text before `separator`; `text` becomes what is behind it.
std::string_view split(std::string_view& text, char separator)
{
  auto const at   = text.find(separator);
  auto const head = text.substr(0, at);
  text            = at == std::string_view::npos ? std::string_view{} : text.substr(at + 1);
  return trim(head);
}

template <class Number>
Number number(
  std::string_view rule, std::string_view key, std::string_view text, Number least, Number most)
{
  Number value{};
  auto const end    = text.data() + text.size();
  auto const result = std::from_chars(text.data(), end, value);
  auto const say    = [&](std::string const& what) {
    reject(rule,
           "the value of '" + std::string{key} + "' is " + what + ": '" + std::string{text} + "'");
  };
  if (result.ec != std::errc{} || result.ptr != end) { say("not a number"); }
  // Written so that NaN is out of every domain.
  if (!(value >= least && value <= most)) { say("out of its domain"); }
  return value;
}

void read_operation(FaultRule& out, std::string_view rule, std::string_view name)
{
  if (name != "read" && name != "write" && name != "any") {
    reject(rule, "the operation '" + std::string{name} + "' is none of read, write, any");
  }
  out.on_read  = name != "write";
  out.on_write = name != "read";
}

void read_fault(FaultRule& out, std::string_view rule, std::string_view name)
{
  for (auto const& [text, os_errno] : error_faults) {
    if (name == text) {
      out.os_errno = os_errno;
      return;
    }
  }
  for (auto const& [text, kind] : other_faults) {
    if (name == text) {
      out.kind = kind;
      return;
    }
  }
  reject(rule, "the fault '" + std::string{name} + "' is not known");
}

void read_key(FaultRule& out, std::string_view rule, std::string_view key, std::string_view value)
{
  auto const count = [&](std::uint64_t least) {
    return number<std::uint64_t>(rule, key, value, least, UINT64_MAX);
  };
  if (key == "after") {
    out.after = count(0);
  } else if (key == "after_bytes") {
    out.after_bytes = parse_bytes(value);
  } else if (key == "every") {
    out.every = count(1);
  } else if (key == "nth") {
    out.nth = count(1);
  } else if (key == "times") {
    out.times = count(1);
  } else if (key == "seed") {
    out.random = count(0);
  } else if (key == "window") {
    out.window = count(0);
  } else if (key == "p") {
    out.probability = number<double>(rule, key, value, 0, 1);
  } else if (key == "ms") {
    out.delay_ns =
      static_cast<std::uint64_t>(number<double>(rule, key, value, 0, longest_ms) * 1e6);
  } else if (key == "path") {
    out.path = value;
  } else {
    reject(rule, "the key '" + std::string{key} + "' is not known");
  }
}

FaultRule read_rule(std::string_view rule)
{
  FaultRule out;
  auto rest = rule;
  if (rest.find(':') == std::string_view::npos) { reject(rule, "there is no ':' in it"); }
  read_operation(out, rule, split(rest, ':'));
  read_fault(out, rule, split(rest, '@'));
  while (!trim(rest).empty()) {
    auto value     = split(rest, ',');
    auto const key = split(value, '=');
    read_key(out, rule, key, trim(value));
  }
  if (out.kind == FaultKind::slow && out.delay_ns == 0) { reject(rule, "slow needs ms=..."); }
  if (out.kind == FaultKind::reorder && out.window < 2) {
    reject(rule, "reorder needs window=2 or more");
  }
  return out;
}

/// The splitmix64 generator: one number in [0, 1).
double draw(std::uint64_t& state)
{
  state += 0x9E3779B97F4A7C15ULL;
  auto mixed = state;
  mixed      = (mixed ^ (mixed >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  mixed      = (mixed ^ (mixed >> 27U)) * 0x94D049BB133111EBULL;
  mixed ^= mixed >> 31U;
  return static_cast<double>(mixed >> 11U) * 0x1.0p-53;
}

bool fires(FaultRule& rule, IoPiece const& piece)
{
  if (!(piece.op == IoOp::read ? rule.on_read : rule.on_write)) { return false; }
  if (!rule.path.empty() && piece.file->path.find(rule.path) == std::string::npos) { return false; }
  auto const number = ++rule.seen;
  rule.seen_bytes += piece.attempt_bytes();
  if (rule.times != 0 && rule.fired >= rule.times) { return false; }
  if (rule.nth != 0 && number != rule.nth) { return false; }
  if (number <= rule.after) { return false; }
  if (rule.after_bytes != 0 && rule.seen_bytes <= rule.after_bytes) { return false; }
  if (rule.every != 0 && (number - rule.after) % rule.every != 0) { return false; }
  if (rule.probability < 1.0 && draw(rule.random) >= rule.probability) { return false; }
  ++rule.fired;
  return true;
}

void apply(FaultRule const& rule, Verdict& verdict)
{
  switch (rule.kind) {
    case FaultKind::error:
      if (verdict.os_errno == 0) { verdict.os_errno = rule.os_errno; }
      break;
    case FaultKind::shortened:
      verdict.shortened = true;
      break;
    case FaultKind::slow:
      verdict.delay_ns += rule.delay_ns;
      break;
    case FaultKind::reorder:
      verdict.window = std::max(verdict.window, rule.window);
      break;
    case FaultKind::lost:
      verdict.lost = true;
      break;
    case FaultKind::kill:
      verdict.kill = true;
      break;
  }
}

}  // namespace

FaultPlan::FaultPlan(std::string text) : text_{std::move(text)}
{
  std::string_view rest{text_};
  while (!rest.empty()) {
    auto const rule = split(rest, ';');
    if (!rule.empty()) { rules_.push_back(read_rule(rule)); }
  }
}

Verdict FaultPlan::judge(IoPiece const& piece)
{
  Verdict verdict;
  std::lock_guard const lock{mutex_};
  for (auto& rule : rules_) {
    if (fires(rule, piece)) { apply(rule, verdict); }
  }
  return verdict;
}

}  // namespace datapath
