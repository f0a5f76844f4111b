// SPDX-License-Identifier: Apache-2.0
/// @file
/// Words in pinned memory that streams wait for, so that a host thread can let a stream go on.
#pragma once

#include "memory/pool.hpp"
#include "streams/device.hpp"
#include "support/json.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace datapath {

/// How far the enqueueing of a wait is.
enum class FlagStep : std::uint8_t {
  reserved,  ///< The stream waits perhaps; the event says nothing yet.
  recorded,  ///< The event is behind the wait.
  unused,    ///< The wait was refused: no stream looks at the word.
  unknown    ///< The wait is enqueued, the event was refused.
};

/// One wait: the word, the value it is waited to have, and an event of the waiting stream behind the wait.
struct DeferredFlag {
  std::uint32_t* word{nullptr};
  std::uint64_t home_address{0};    ///< On the scheduler's device.
  std::uint64_t device_address{0};  ///< On the waiting stream's device.
  std::uint32_t value{0};
  Ref<Device> device;
  EventHandle passed{0};
  bool set_by_stream{false};
  /// Shared by all copies: one thread enqueues the wait while another may set the flag and retire it.
  std::shared_ptr<std::atomic<FlagStep>> step;
};

/// A word is used again only when the stream that waited for it has gone on. From any thread; what the
/// scheduler's thread calls while transfers are in flight (`set`) never waits for a driver's call.
class FlagPool {
 public:
  explicit FlagPool(Ref<Device> device, Ref<Pool> pool);
  FlagPool(FlagPool const&)            = delete;
  FlagPool& operator=(FlagPool const&) = delete;

  /// A flag for a stream of `device`; the caller's to give back, or to wait for and to set.
  [[nodiscard]] DeferredFlag reserve(Device& device);
  /// Takes back what no wait was enqueued for.
  void give_back(DeferredFlag const& flag);
  /// Makes `stream` wait. May block in the driver until others have set their flags, or this one: hold no
  /// lock that they need. The flag is to be set also where this throws.
  void wait(DeferredFlag const& flag, dp_stream stream);
  /// Lets the stream go on, unless another stream does already, and takes the word back for later use.
  void set(DeferredFlag flag) noexcept;
  /// Gives the memory back; what a stream may still look at is leaked. No wait may follow.
  void shut_down() noexcept;
  void describe(JsonWriter& json) const;

 private:
  struct Word {
    std::uint32_t* word;
    std::uint64_t home_address;
    std::uint32_t value;
  };
  [[nodiscard]] static bool has_gone_on(DeferredFlag const& flag) noexcept;
  [[nodiscard]] std::optional<Word> take_free();
  [[nodiscard]] Word take();
  void collect();
  void grow();

  Ref<Device> device_;
  std::mutex refilling_;  ///< Held while words are looked for, over calls of the driver.
  Ref<Pool> pool_;
  mutable std::mutex mutex_;  ///< Guards what follows, never held over a call of the driver.
  std::vector<Ref<Buffer>> pages_;
  std::vector<Word> free_;
  std::vector<DeferredFlag> retired_;
  std::atomic<std::uint64_t> waits_{0};
};

}  // namespace datapath
