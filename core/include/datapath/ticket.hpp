// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tickets: work in flight, its end and its error.
#pragma once

#include <datapath/device.hpp>
#include <datapath/handle.hpp>

#include <chrono>
#include <cstdint>

namespace datapath::client {

class Ticket : public Handle<dp_ticket, dp_ticket_retain, dp_ticket_release> {
 public:
  static constexpr std::uint64_t forever = UINT64_MAX;

  Ticket() noexcept = default;
  /// Takes over one reference.
  [[nodiscard]] static Ticket adopt(dp_ticket* raw) noexcept { return Ticket{raw}; }

  /// Whether the work has ended, well or not. Never blocks.
  [[nodiscard]] bool done() const noexcept { return dp_ticket_test(get()) != DP_PENDING; }

  /// The bytes moved; throws the error of the work. Throws TimeoutError after `timeout` nanoseconds.
  std::uint64_t result(std::uint64_t timeout = forever) const
  {
    std::uint64_t nbytes = 0;
    if (detail::check(dp_ticket_result(get(), timeout, &nbytes)) == DP_TIMEOUT) { throw_timeout(); }
    return nbytes;
  }
  std::uint64_t result(std::chrono::nanoseconds timeout) const
  { return result(timeout.count() < 0 ? 0 : static_cast<std::uint64_t>(timeout.count())); }

  /// Orders the stream after the work; see dp_ticket_wait_stream for what blocks.
  void wait(Device const& device,
            dp_stream stream,
            bool deferred         = false,
            std::uint64_t timeout = forever) const
  {
    if (detail::check(dp_ticket_wait_stream(
          get(), device.get(), stream, deferred ? 1 : 0, timeout)) == DP_TIMEOUT) {
      throw_timeout();
    }
  }

 private:
  using Handle::Handle;
  [[noreturn]] static void throw_timeout()
  {
    throw TimeoutError{
      "the work did not end in time; it goes on, and its ticket can be waited for again"};
  }
};

}  // namespace datapath::client
