// SPDX-License-Identifier: Apache-2.0
/// @file
/// Words in pinned memory that streams wait for, so that a host thread can let a stream go on.
#pragma once

#include "memory/pool.hpp"
#include "streams/device.hpp"
#include "support/json.hpp"

#include <cstdint>
#include <mutex>
#include <vector>

namespace datapath {

/// One wait: the word, the value it is waited to have, and an event of the waiting stream behind the wait.
struct DeferredFlag {
  std::uint32_t* word{nullptr};
  std::uint64_t device_address{0};
  std::uint32_t value{0};
  Ref<Device> device;
  EventHandle passed{0};
  bool set_by_stream{false};
};

/// A word is used again only when the stream that waited for it has gone on.
class FlagPool {
 public:
  explicit FlagPool(Ref<Device> device, Ref<Pool> pool);
  FlagPool(FlagPool const&)            = delete;
  FlagPool& operator=(FlagPool const&) = delete;

  /// Makes `stream` of `device` wait; the flag is then the caller's to set.
  [[nodiscard]] DeferredFlag wait(Device& device, dp_stream stream);
  /// Lets the stream go on, unless another stream does already, and takes the word back for later use.
  void set(DeferredFlag flag) noexcept;
  /// Gives the memory back; what a stream may still look at is leaked. No wait may follow.
  void shut_down() noexcept;
  void describe(JsonWriter& json) const;

 private:
  struct Word {
    std::uint32_t* word;
    std::uint64_t device_address;
    std::uint32_t value;
  };
  void collect();
  void grow();

  Ref<Device> device_;
  Ref<Pool> pool_;
  mutable std::mutex mutex_;
  std::vector<Ref<Buffer>> pages_;
  std::vector<Word> free_;
  std::vector<DeferredFlag> retired_;
  std::uint64_t waits_{0};
};

}  // namespace datapath
