// SPDX-License-Identifier: Apache-2.0
#include "support/error.hpp"
#include "support/settings.hpp"

#include <array>
#include <cctype>
#include <limits>

namespace datapath {

namespace {

[[noreturn]] void reject(std::string_view text, std::string_view why)
{
  fail(DP_ERR_INVALID,
       "cannot read '" + std::string{text} + "' as a number of bytes: " + std::string{why} +
         "; write digits and a binary unit, for example 4096, 512KiB or 8GiB");
}

/// Power of 1024 of "", "B", "K", "KB", "KiB" and so on in any case; -1 for anything else.
int unit_exponent(std::string_view unit)
{
  std::string upper;
  for (char const c : unit) {
    upper.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  }
  if (upper.empty() || upper == "B") { return 0; }
  constexpr std::string_view letters{"KMGTPE"};
  auto const position = letters.find(upper.front());
  auto const rest     = upper.substr(1);
  if (position == std::string_view::npos || !(rest.empty() || rest == "B" || rest == "IB")) {
    return -1;
  }
  return static_cast<int>(position) + 1;
}

}  // namespace

std::uint64_t parse_bytes(std::string_view text)
{
  auto const whole    = text;
  auto const is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  auto const is_digit = [](char c) { return c >= '0' && c <= '9'; };
  while (!text.empty() && is_space(text.front())) { text.remove_prefix(1); }
  while (!text.empty() && is_space(text.back())) { text.remove_suffix(1); }
  long double number = 0;
  bool any_digit     = false;
  while (!text.empty() && is_digit(text.front())) {
    number    = number * 10 + (text.front() - '0');
    any_digit = true;
    text.remove_prefix(1);
  }
  if (!text.empty() && text.front() == '.') {
    text.remove_prefix(1);
    long double place = 1;
    while (!text.empty() && is_digit(text.front())) {
      place /= 10;
      number += place * (text.front() - '0');
      any_digit = true;
      text.remove_prefix(1);
    }
  }
  if (!any_digit) { reject(whole, "it does not begin with a number"); }
  while (!text.empty() && is_space(text.front())) { text.remove_prefix(1); }
  auto const exponent = unit_exponent(text);
  if (exponent < 0) { reject(whole, "the unit '" + std::string{text} + "' is unknown"); }
  for (int i = 0; i < exponent; ++i) { number *= 1024; }
  // 2^64 itself is allowed to stand for "no limit", as the largest value.
  constexpr long double limit = 18446744073709551616.0L;
  if (number > limit) { reject(whole, "it is more than 16EiB"); }
  if (number == limit) { return std::numeric_limits<std::uint64_t>::max(); }
  // Half a byte cannot be meant, but 0.1 has no exact binary form: a little is forgiven.
  return static_cast<std::uint64_t>(number + 1e-6L);
}

}  // namespace datapath
