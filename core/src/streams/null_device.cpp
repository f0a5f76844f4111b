// SPDX-License-Identifier: Apache-2.0
#include "streams/null_device.hpp"

#include "memory/pages.hpp"
#include "shim/cuda_types.hpp"
#include "streams/host_table.hpp"
#include "streams/null_stream.hpp"
#include "support/error.hpp"

#include <deque>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace datapath {

namespace {

constexpr dp_stream last_default_stream    = 2;
constexpr std::size_t allocation_alignment = 512;

[[noreturn]] void refuse_host(cuda::Result result,
                              std::uintptr_t pointer,
                              std::size_t nbytes,
                              char const* why)
{
  throw Error{ErrorInfo{DP_ERR_CUDA,
                        "null device: host registration of " + std::to_string(nbytes) +
                          " bytes at " + hex_address(pointer) + ": " + why,
                        {},
                        -1,
                        0,
                        result}};
}

void free_aligned(std::uint64_t address) noexcept
{
  ::operator delete(reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)),
                    std::align_val_t{allocation_alignment});
}

void expects_word(std::uint64_t address)
{
  expects(address != 0 && address % sizeof(std::uint32_t) == 0,
          "null device: the word's address must be a multiple of 4");
}

}  // namespace

struct NullDevice::State {
  // Streams use events and the clock, so they are destroyed, and joined, first: declared last.
  NullClock clock;
  HostTable host;

  std::mutex event_mutex;
  std::vector<std::unique_ptr<NullEvent>> events;
  std::deque<NullEvent*> free_events;

  std::mutex allocation_mutex;
  std::unordered_set<std::uint64_t> allocations;

  std::shared_mutex stream_mutex;
  std::vector<std::shared_ptr<NullStream>> retired;
  std::unordered_map<dp_stream, std::shared_ptr<NullStream>> streams;

  std::shared_ptr<NullStream> find(dp_stream stream)
  {
    auto const key = stream <= last_default_stream ? 0 : stream;
    {
      std::shared_lock const lock{stream_mutex};
      if (auto const found = streams.find(key); found != streams.end()) { return found->second; }
    }
    if (key != 0) {
      fail(DP_ERR_INVALID,
           "null device: " + std::to_string(stream) +
             " is not one of its streams; make one with stream_create, or pass 0");
    }
    std::unique_lock const lock{stream_mutex};
    auto& slot = streams[0];
    if (!slot) { slot = std::make_shared<NullStream>(clock); }
    return slot;
  }

  /// CUDA refuses a copy that starts inside a registered range and runs past its end, whatever lies
  /// behind it.
  void expects_one_range(std::uint64_t address, std::size_t nbytes) const
  {
    auto const* const pointer = reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
    auto const range          = host.find(pointer).range;
    if (range.nbytes == 0 || nbytes <= range.start + range.nbytes - address) { return; }
    throw Error{ErrorInfo{DP_ERR_CUDA,
                          "null device: a copy of " + std::to_string(nbytes) + " bytes at " +
                            hex_address(address) + " runs past the end of the registered range " +
                            "that it starts in, of " + std::to_string(range.nbytes) + " bytes at " +
                            hex_address(range.start),
                          {},
                          -1,
                          0,
                          cuda::error_invalid_value}};
  }

  static NullEvent& event(EventHandle handle)
  {
    expects(handle != 0, "null device: the event is 0");
    return *reinterpret_cast<NullEvent*>(static_cast<std::uintptr_t>(handle));
  }

  /// CUDA refuses to look at an event that only a graph records.
  static NullEvent& event_outside_capture(EventHandle handle)
  {
    auto& found = event(handle);
    if (found.capture()) {
      throw Error{ErrorInfo{DP_ERR_CUDA,
                            "null device: the event was last recorded inside a graph capture",
                            {},
                            -1,
                            0,
                            cuda::error_captured_event}};
    }
    return found;
  }
};

NullDevice::NullDevice() : state_{std::make_unique<State>()} {}

NullDevice::~NullDevice()
{
  if (fork_.inherited()) {
    // The threads are the parent's: nothing here may be joined or locked.
    (void)state_.release();
    return;
  }
  state_->clock.stopping.store(true, std::memory_order_release);
  state_->streams.clear();
  state_->retired.clear();
  // As with a context, what the caller did not free goes with the device.
  for (auto const address : state_->allocations) { free_aligned(address); }
}

NullDevice::State& NullDevice::state() const
{
  fork_.check("the null device");
  return *state_;
}

dp_stream NullDevice::create_stream(int /*priority*/)
{
  auto& state    = this->state();
  auto stream    = std::make_shared<NullStream>(state.clock);
  auto const key = static_cast<dp_stream>(reinterpret_cast<std::uintptr_t>(stream.get()));
  std::unique_lock const lock{state.stream_mutex};
  std::erase_if(state.retired, [](auto const& old) { return old->finished(); });
  state.streams.emplace(key, std::move(stream));
  return key;
}

void NullDevice::destroy_stream(dp_stream stream) noexcept
{
  if (fork_.inherited() || stream <= last_default_stream) { return; }
  std::unique_lock const lock{state_->stream_mutex};
  auto node = state_->streams.extract(stream);
  if (node.empty()) { return; }
  // Like CUDA, returns at once; the thread is joined when it has ended.
  node.mapped()->close();
  state_->retired.push_back(std::move(node.mapped()));
}

void NullDevice::synchronize(dp_stream stream)
{ state().find(stream)->synchronize(); }

bool NullDevice::is_capturing(dp_stream stream)
{ return state().find(stream)->is_capturing(); }

void NullDevice::wait_event(dp_stream stream, EventHandle event)
{ state().find(stream)->wait_event(State::event(event)); }

void NullDevice::write_value32(dp_stream stream, std::uint64_t address, std::uint32_t value)
{
  expects_word(address);
  NullOperation operation{.kind = NullOperation::Kind::write_value};
  operation.destination = address;
  operation.value       = value;
  state().find(stream)->submit(operation);
}

void NullDevice::wait_value32(dp_stream stream, std::uint64_t address, std::uint32_t value)
{
  expects_word(address);
  NullOperation operation{.kind = NullOperation::Kind::wait_value};
  operation.destination = address;
  operation.value       = value;
  state().find(stream)->submit(operation);
}

EventHandle NullDevice::acquire_event()
{
  auto& state = this->state();
  std::lock_guard const lock{state.event_mutex};
  NullEvent* event = nullptr;
  if (!state.free_events.empty() && state.free_events.front()->passed()) {
    event = state.free_events.front();
    state.free_events.pop_front();
  } else {
    event = state.events.emplace_back(std::make_unique<NullEvent>()).get();
  }
  return static_cast<EventHandle>(reinterpret_cast<std::uintptr_t>(event));
}

void NullDevice::release_event(EventHandle event) noexcept
{
  if (fork_.inherited() || event == 0) { return; }
  auto& released = State::event(event);
  released.record_captured(nullptr);
  std::lock_guard const lock{state_->event_mutex};
  state_->free_events.push_back(&released);
}

void NullDevice::record(EventHandle event, dp_stream stream)
{ state().find(stream)->record(State::event(event)); }

bool NullDevice::query(EventHandle event)
{
  fork_.check("the null device");
  return State::event_outside_capture(event).passed();
}

void NullDevice::synchronize_event(EventHandle event)
{
  fork_.check("the null device");
  auto& waited = State::event_outside_capture(event);
  (void)waited.wait(waited.recorded());
}

void NullDevice::copy_async(std::uint64_t destination,
                            std::uint64_t source,
                            std::size_t nbytes,
                            CopyKind kind,
                            dp_stream stream)
{
  auto& state = this->state();
  if (nbytes == 0) { return; }
  expects(destination != 0 && source != 0, "null device: a copy from or to address 0");
  if (kind != CopyKind::device_to_device) {
    state.expects_one_range(kind == CopyKind::host_to_device ? source : destination, nbytes);
  }
  NullOperation operation{.kind = NullOperation::Kind::copy};
  operation.destination = destination;
  operation.source      = source;
  operation.nbytes      = nbytes;
  state.find(stream)->submit(operation);
}

void NullDevice::fill_async(std::uint64_t destination,
                            std::uint8_t byte,
                            std::size_t nbytes,
                            dp_stream stream)
{
  auto& state = this->state();
  if (nbytes == 0) { return; }
  expects(destination != 0, "null device: a fill of address 0");
  NullOperation operation{.kind = NullOperation::Kind::fill};
  operation.destination = destination;
  operation.value       = byte;
  operation.nbytes      = nbytes;
  state.find(stream)->submit(operation);
}

std::uint64_t NullDevice::allocate(std::size_t nbytes)
{
  auto& state = this->state();
  expects(nbytes != 0, "device memory: nbytes must be at least 1");
  auto* const memory = ::operator new(nbytes, std::align_val_t{allocation_alignment}, std::nothrow);
  if (memory == nullptr) {
    fail(DP_ERR_BUDGET, "null device: no host memory for " + std::to_string(nbytes) + " bytes");
  }
  auto const address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(memory));
  std::lock_guard const lock{state.allocation_mutex};
  state.allocations.insert(address);
  return address;
}

void NullDevice::free(std::uint64_t address)
{
  auto& state = this->state();
  {
    std::lock_guard const lock{state.allocation_mutex};
    if (state.allocations.erase(address) == 0) {
      throw Error{ErrorInfo{DP_ERR_CUDA,
                            "null device: free of " + std::to_string(address) +
                              ", which is not the start of a live allocation",
                            {},
                            -1,
                            0,
                            cuda::error_invalid_value}};
    }
  }
  free_aligned(address);
}

std::uint64_t NullDevice::register_host(void* pointer, std::size_t nbytes, bool read_only)
{
  auto& state        = this->state();
  auto const address = reinterpret_cast<std::uintptr_t>(pointer);
  if (nbytes == 0 || address == 0) {
    refuse_host(cuda::error_invalid_value, address, nbytes, "no address or no bytes");
  }
  auto const start = page_floor(address);
  if (populate(reinterpret_cast<void*>(start), page_ceil(address + nbytes) - start, !read_only) !=
      0) {
    refuse_host(cuda::error_invalid_value,
                address,
                nbytes,
                "the memory is not mapped, or read-only without the read-only flag");
  }
  if (!state.host.insert(pointer, nbytes, address)) {
    refuse_host(cuda::error_host_memory_already_registered,
                address,
                nbytes,
                "some of it is registered already");
  }
  return address;
}

void NullDevice::unregister_host(void* pointer) noexcept
{
  if (!fork_.inherited()) { state_->host.remove(pointer); }
}

HostRange NullDevice::registered_range(void const* pointer) noexcept
{ return fork_.inherited() ? HostRange{} : state_->host.find(pointer).range; }

std::uint64_t NullDevice::mapped_address(void const* pointer) noexcept
{ return fork_.inherited() ? 0 : state_->host.find(pointer).device_address; }

void NullDevice::begin_capture(dp_stream stream)
{
  auto& state = this->state();
  if (stream <= last_default_stream) {
    throw Error{ErrorInfo{DP_ERR_CUDA,
                          "null device: the default stream cannot capture; make a stream",
                          {},
                          -1,
                          0,
                          cuda::error_stream_capture_unsupported}};
  }
  state.find(stream)->begin_capture();
}

void NullDevice::end_capture(dp_stream stream)
{ state().find(stream)->end_capture(); }

void NullDevice::set_copy_delay(std::uint64_t nanoseconds)
{ state().clock.copy_delay.store(nanoseconds, std::memory_order_relaxed); }

std::size_t NullDevice::registered_ranges() const
{ return state().host.size(); }

}  // namespace datapath
