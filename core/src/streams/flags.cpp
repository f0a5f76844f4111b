// SPDX-License-Identifier: Apache-2.0
#include "streams/flags.hpp"

#include "support/error.hpp"

#include <atomic>
#include <utility>

namespace datapath {

namespace {
constexpr std::uint64_t page_bytes = 4096;
// A cache line each: the device writes some, the host others.
constexpr std::uint64_t stride = 64;
}  // namespace

FlagPool::FlagPool(Ref<Device> device, Ref<Pool> pool)
  : device_{std::move(device)}, pool_{std::move(pool)}
{}

void FlagPool::shut_down() noexcept
{
  std::lock_guard const lock{mutex_};
  collect();
  if (!retired_.empty()) {
    for (auto& page : pages_) { (void)page.leak(); }
  }
  free_.clear();
  pages_.clear();
  pool_ = nullptr;
}

void FlagPool::grow()
{
  if (!pool_) {
    PoolOptions options;
    options.device = device_;
    pool_          = make_ref<Pool>(options);
  }
  auto page = pool_->allocate(page_bytes, page_bytes);
  if (page->device_address() == 0) {
    fail(DP_ERR_UNSUPPORTED,
         "a deferred wait needs memory that the device can see, and the scheduler's pool has none; "
         "give the scheduler a pool of its device, or wait without deferred");
  }
  auto* const data = static_cast<std::byte*>(page->data());
  for (std::uint64_t offset = 0; offset < page_bytes; offset += stride) {
    auto* const word = reinterpret_cast<std::uint32_t*>(data + offset);
    *word            = 0;
    free_.push_back({word, page->device_address() + offset, 0});
  }
  pages_.push_back(std::move(page));
}

void FlagPool::collect()
{
  std::erase_if(retired_, [this](DeferredFlag const& flag) {
    try {
      if (!flag.device->query(flag.passed)) { return false; }
    } catch (...) {
      return false;
    }
    flag.device->release_event(flag.passed);
    free_.push_back({flag.word, flag.device_address, flag.value});
    return true;
  });
}

DeferredFlag FlagPool::wait(Device& device, dp_stream stream)
{
  std::lock_guard const lock{mutex_};
  if (free_.empty()) { collect(); }
  if (free_.empty()) { grow(); }
  auto word = free_.back();
  ++word.value;
  DeferredFlag flag{
    word.word, word.device_address, word.value, Ref<Device>::share(&device), 0, false};
  if (&device != device_.get()) {
    flag.device_address = device.mapped_address(word.word);
    if (flag.device_address == 0) {
      fail(DP_ERR_UNSUPPORTED,
           "the stream's device cannot see the scheduler's flags; wait without deferred, or use a "
           "scheduler of that device");
    }
  }
  flag.passed = device.acquire_event();
  try {
    device.wait_value32(stream, flag.device_address, flag.value);
  } catch (...) {
    device.release_event(flag.passed);
    throw;
  }
  free_.pop_back();
  ++waits_;
  try {
    device.record(flag.passed, stream);
  } catch (...) {
    // The stream waits already: nobody can tell when it has gone on, so the word is never used again.
    device.release_event(std::exchange(flag.passed, 0));
    std::atomic_ref{*flag.word}.store(flag.value, std::memory_order_release);
    throw;
  }
  return flag;
}

void FlagPool::set(DeferredFlag flag) noexcept
{
  if (!flag.set_by_stream) {
    std::atomic_ref{*flag.word}.store(flag.value, std::memory_order_release);
  }
  std::lock_guard const lock{mutex_};
  retired_.push_back(std::move(flag));
}

void FlagPool::describe(JsonWriter& json) const
{
  std::lock_guard const lock{mutex_};
  json.object("flags")
    .field("pages", pages_.size())
    .field("waits", waits_)
    .field("waiting_for_streams", retired_.size())
    .end();
}

}  // namespace datapath
