// SPDX-License-Identifier: Apache-2.0
/// @file
/// A device made of host memory and one thread a stream, so that everything above it runs, and is
/// tested, without a GPU. Where CUDA refuses (a wrong free, memory registered twice, a copy over
/// the end of a registered range, a query of a captured event) it refuses with the driver's number.
/// Priorities are accepted and ignored.
#pragma once

#include "streams/device.hpp"
#include "support/fork.hpp"

#include <memory>

namespace datapath {

class NullDevice : public Device {
 public:
  NullDevice();
  /// Runs what is queued; a wait for a value that never came gives up, with all that is behind it.
  ~NullDevice() override;

  [[nodiscard]] bool is_cuda() const noexcept override { return false; }
  [[nodiscard]] int ordinal() const noexcept override { return 0; }
  [[nodiscard]] int numa_node() const noexcept override { return -1; }
  [[nodiscard]] std::string_view name() const noexcept override { return "null"; }

  [[nodiscard]] dp_stream create_stream(int priority) override;
  void destroy_stream(dp_stream stream) noexcept override;
  void synchronize(dp_stream stream) override;
  [[nodiscard]] bool is_capturing(dp_stream stream) override;
  void wait_event(dp_stream stream, EventHandle event) override;
  void write_value32(dp_stream stream, std::uint64_t address, std::uint32_t value) override;
  void wait_value32(dp_stream stream, std::uint64_t address, std::uint32_t value) override;

  [[nodiscard]] EventHandle acquire_event() override;
  void release_event(EventHandle event) noexcept override;
  void record(EventHandle event, dp_stream stream) override;
  [[nodiscard]] bool query(EventHandle event) override;
  void synchronize_event(EventHandle event) override;

  void copy_async(std::uint64_t destination,
                  std::uint64_t source,
                  std::size_t nbytes,
                  CopyKind kind,
                  dp_stream stream) override;
  void fill_async(std::uint64_t destination,
                  std::uint8_t byte,
                  std::size_t nbytes,
                  dp_stream stream) override;
  [[nodiscard]] std::uint64_t allocate(std::size_t nbytes) override;
  void free(std::uint64_t address) override;

  std::uint64_t register_host(void* pointer, std::size_t nbytes, bool read_only) override;
  void unregister_host(void* pointer) noexcept override;
  [[nodiscard]] std::uint64_t mapped_address(void const* pointer) noexcept override;
  [[nodiscard]] HostRange registered_range(void const* pointer) noexcept override;

  // ---- for tests

  /// Not on the default stream, as CUDA refuses it there.
  void begin_capture(dp_stream stream);
  void end_capture(dp_stream stream);
  /// Each copy lasts at least this long.
  void set_copy_delay(std::uint64_t nanoseconds);
  /// Ranges registered now.
  [[nodiscard]] std::size_t registered_ranges() const;

 private:
  struct State;
  /// Throws in a forked child, where the threads are missing.
  [[nodiscard]] State& state() const;

  ForkGuard fork_;
  std::unique_ptr<State> state_;
};

}  // namespace datapath
