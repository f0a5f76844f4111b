// SPDX-License-Identifier: Apache-2.0
#include "streams/flags.hpp"

#include "support/error.hpp"

#include <algorithm>
#include <iterator>
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
  std::lock_guard const refilling{refilling_};
  collect();
  std::lock_guard const lock{mutex_};
  if (!retired_.empty()) {
    for (auto& page : pages_) { (void)page.leak(); }
  }
  free_.clear();
  pages_.clear();
  pool_ = nullptr;
}

std::optional<FlagPool::Word> FlagPool::take_free()
{
  std::lock_guard const lock{mutex_};
  if (free_.empty()) { return std::nullopt; }
  auto const word = free_.back();
  free_.pop_back();
  return word;
}

FlagPool::Word FlagPool::take()
{
  if (auto const word = take_free()) { return *word; }
  std::lock_guard const refilling{refilling_};
  collect();
  while (true) {
    if (auto const word = take_free()) { return *word; }
    grow();
  }
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
  std::lock_guard const lock{mutex_};
  for (std::uint64_t offset = 0; offset < page_bytes; offset += stride) {
    auto* const word = reinterpret_cast<std::uint32_t*>(data + offset);
    *word            = 0;
    free_.push_back({word, page->device_address() + offset, 0});
  }
  pages_.push_back(std::move(page));
}

bool FlagPool::has_gone_on(DeferredFlag const& flag) noexcept
{
  switch (flag.step->load(std::memory_order_acquire)) {
    case FlagStep::reserved:
    case FlagStep::unknown:
      return false;
    case FlagStep::unused:
      return true;
    case FlagStep::recorded:
      break;
  }
  try {
    return flag.device->query(flag.passed);
  } catch (...) {
    return false;
  }
}

void FlagPool::collect()
{
  std::vector<DeferredFlag> retired;
  {
    std::lock_guard const lock{mutex_};
    retired.swap(retired_);
  }
  auto const waiting = std::partition(retired.begin(), retired.end(), has_gone_on);
  for (auto flag = retired.begin(); flag != waiting; ++flag) { give_back(*flag); }
  std::lock_guard const lock{mutex_};
  retired_.insert(
    retired_.end(), std::make_move_iterator(waiting), std::make_move_iterator(retired.end()));
}

DeferredFlag FlagPool::reserve(Device& device)
{
  auto word = take();
  ++word.value;
  try {
    DeferredFlag flag;
    flag.word           = word.word;
    flag.home_address   = word.home_address;
    flag.device_address = word.home_address;
    flag.value          = word.value;
    flag.device         = Ref<Device>::share(&device);
    flag.step           = std::make_shared<std::atomic<FlagStep>>(FlagStep::reserved);
    if (&device != device_.get()) {
      flag.device_address = device.mapped_address(word.word);
      if (flag.device_address == 0) {
        fail(DP_ERR_UNSUPPORTED,
             "the stream's device cannot see the scheduler's flags; wait without deferred, or use "
             "a scheduler of that device");
      }
    }
    flag.passed = device.acquire_event();
    return flag;
  } catch (...) {
    std::lock_guard const lock{mutex_};
    free_.push_back(word);
    throw;
  }
}

void FlagPool::give_back(DeferredFlag const& flag)
{
  flag.device->release_event(flag.passed);
  std::lock_guard const lock{mutex_};
  free_.push_back({flag.word, flag.home_address, flag.value});
}

void FlagPool::wait(DeferredFlag const& flag, dp_stream stream)
{
  try {
    flag.device->wait_value32(stream, flag.device_address, flag.value);
  } catch (...) {
    flag.step->store(FlagStep::unused, std::memory_order_release);
    throw;
  }
  try {
    flag.device->record(flag.passed, stream);
  } catch (...) {
    // The stream waits already: nobody can tell when it has gone on, so the word is never used again.
    std::atomic_ref{*flag.word}.store(flag.value, std::memory_order_release);
    flag.step->store(FlagStep::unknown, std::memory_order_release);
    throw;
  }
  flag.step->store(FlagStep::recorded, std::memory_order_release);
  waits_.fetch_add(1, std::memory_order_relaxed);
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
    .field("waits", waits_.load(std::memory_order_relaxed))
    .field("waiting_for_streams", retired_.size())
    .end();
}

}  // namespace datapath
