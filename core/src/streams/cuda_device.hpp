// SPDX-License-Identifier: Apache-2.0
/// @file
/// A CUDA device through the driver API: the primary context that everyone in the process shares is
/// retained and made current for each call, so that callers need none of their own.
///
/// Calls that CUDA forbids to a thread while some graph is being captured run with the thread's
/// capture mode relaxed, so that they never break another thread's capture.
#pragma once

#include "shim/cuda.hpp"
#include "streams/device.hpp"
#include "streams/host_table.hpp"
#include "support/fork.hpp"

#include <deque>
#include <mutex>

namespace datapath {

class CudaDevice final : public Device {
 public:
  /// Loads the driver: DP_ERR_UNSUPPORTED without one, DP_ERR_INVALID for an ordinal that is not
  /// there.
  explicit CudaDevice(int ordinal);
  ~CudaDevice() override;

  [[nodiscard]] bool is_cuda() const noexcept override { return true; }
  [[nodiscard]] int ordinal() const noexcept override { return ordinal_; }
  [[nodiscard]] int numa_node() const noexcept override { return numa_node_; }
  [[nodiscard]] std::string_view name() const noexcept override { return name_; }

  void adopt_thread() noexcept override;

  /// Non-blocking: it does not wait for the legacy default stream. Higher numbers come first here,
  /// as everywhere in this library, and are clamped to what the device has.
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

 private:
  class Current;
  class RelaxedCapture;

  /// Throws in a forked child and after main has ended.
  void check_usable() const;
  [[nodiscard]] bool unusable() const noexcept;
  void check(cuda::Result result, char const* call) const;
  template <class... Arguments>
  void check(cuda::Result result, char const* call, Arguments const&... arguments) const;
  [[nodiscard]] int attribute(int which) const;
  [[nodiscard]] int find_numa_node() const;
  /// Asks the driver about memory that another library, or another device object, registered.
  [[nodiscard]] HostTable::Entry find_foreign(void const* pointer) const;
  [[nodiscard]] HostTable::Entry find_registered(void const* pointer) const noexcept;

  cuda::Driver const& driver_;
  ForkGuard fork_;
  int ordinal_;
  cuda::DeviceHandle handle_{0};
  cuda::Context context_{nullptr};
  int numa_node_{-1};
  int least_priority_{0};
  int greatest_priority_{0};
  std::string name_;

  HostTable registered_;  ///< Ours; the driver is asked about other libraries' only.

  std::mutex event_mutex_;
  std::deque<cuda::Event> events_;  ///< Free ones, oldest first.
};

}  // namespace datapath
