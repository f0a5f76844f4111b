// SPDX-License-Identifier: Apache-2.0
#include "streams/cuda_device.hpp"

#include "memory/pages.hpp"
#include "streams/numa.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace datapath {

namespace {

cuda::Stream as_stream(dp_stream stream)
{ return reinterpret_cast<cuda::Stream>(static_cast<std::uintptr_t>(stream)); }

cuda::Event as_event(EventHandle event)
{ return reinterpret_cast<cuda::Event>(static_cast<std::uintptr_t>(event)); }

void* as_pointer(std::uint64_t address)
{ return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)); }

cuda::DevicePointer as_device_pointer(void const* pointer)
{ return static_cast<cuda::DevicePointer>(reinterpret_cast<std::uintptr_t>(pointer)); }

}  // namespace

/// Makes the device's primary context current for this thread, and puts the old one back. Where it is
/// current already, as in a thread that uses the CUDA runtime, the driver is only asked for that.
class CudaDevice::Current {
 public:
  explicit Current(CudaDevice const& device) : device_{device}
  {
    device.check_usable();
    cuda::Context current = nullptr;
    if (device.driver_.context_get_current(&current) == cuda::success &&
        current == device.context_) {
      return;
    }
    device.check(device.driver_.context_push(device.context_), "cuCtxPushCurrent");
    pushed_ = true;
  }
  Current(Current const&)            = delete;
  Current& operator=(Current const&) = delete;
  ~Current()
  {
    if (!pushed_) { return; }
    cuda::Context popped = nullptr;
    (void)device_.driver_.context_pop(&popped);
  }

 private:
  CudaDevice const& device_;
  bool pushed_{false};
};

/// Lets this thread make calls that would otherwise break a capture in progress elsewhere.
class CudaDevice::RelaxedCapture {
 public:
  explicit RelaxedCapture(CudaDevice const& device) : device_{device}
  { (void)device_.driver_.thread_exchange_capture_mode(&mode_); }
  RelaxedCapture(RelaxedCapture const&)            = delete;
  RelaxedCapture& operator=(RelaxedCapture const&) = delete;
  ~RelaxedCapture() { (void)device_.driver_.thread_exchange_capture_mode(&mode_); }

 private:
  CudaDevice const& device_;
  int mode_{cuda::capture_mode_relaxed};
};

CudaDevice::CudaDevice(int ordinal) : driver_{cuda::driver()}, ordinal_{ordinal}
{
  name_            = "cuda:" + std::to_string(ordinal);
  auto const count = cuda::device_count();
  if (ordinal >= count) {
    fail(DP_ERR_INVALID,
         "there is no device " + name_ + "; the driver shows " + std::to_string(count) +
           " (CUDA_VISIBLE_DEVICES limits them)");
  }
  check(driver_.device_get(&handle_, ordinal), "cuDeviceGet");
  context_ = cuda::primary_context(ordinal);
  Current const current{*this};
  check(driver_.stream_priority_range(&least_priority_, &greatest_priority_),
        "cuCtxGetStreamPriorityRange");
  numa_node_ = find_numa_node();
}

CudaDevice::~CudaDevice()
{
  if (unusable()) { return; }
  try {
    Current const current{*this};
    for (auto* const event : events_) { (void)driver_.event_destroy(event); }
  } catch (Error const&) {
    // A broken context: its events go with it.
  }
}

bool CudaDevice::unusable() const noexcept
{ return fork_.inherited() || cuda::process_exiting(); }

void CudaDevice::check_usable() const
{
  if (!unusable()) { return; }
  fork_.check(name_.c_str());
  fail(DP_ERR_UNSUPPORTED, name_ + ": the process is exiting and CUDA may be gone already");
}

void CudaDevice::check(cuda::Result result, char const* call) const
{
  if (result != cuda::success) {
    throw Error{cuda::call_error(driver_, result, std::string{call} + " on " + name_)};
  }
}

template <class... Arguments>
void CudaDevice::check(cuda::Result result, char const* call, Arguments const&... arguments) const
{
  if (result == cuda::success) { return; }
  std::string text{call};
  char separator    = '(';
  auto const append = [&](auto const& argument) {
    text += std::exchange(separator, ',');
    if (text.back() == ',') { text += ' '; }
    if constexpr (std::is_same_v<std::decay_t<decltype(argument)>, int>) {
      text += std::to_string(argument);
    } else {
      text += hex_address(static_cast<std::uintptr_t>(argument));
    }
  };
  (append(arguments), ...);
  throw Error{cuda::call_error(driver_, result, text + ") on " + name_)};
}

int CudaDevice::attribute(int which) const
{
  int value = 0;
  // An attribute that the driver is too old to know counts as zero.
  return driver_.device_get_attribute(&value, which, handle_) == cuda::success ? value : 0;
}

int CudaDevice::find_numa_node() const
{
  int node = -1;
  if (driver_.device_get_attribute(&node, cuda::attribute_host_numa_id, handle_) == cuda::success &&
      node >= 0) {
    return node;
  }
  std::array<char, 32> bus_id{};
  if (driver_.device_get_pci_bus_id(bus_id.data(), static_cast<int>(bus_id.size()), handle_) !=
      cuda::success) {
    return -1;
  }
  return numa_node_of_pci(bus_id.data());
}

void CudaDevice::adopt_thread() noexcept
{
  if (!unusable()) { (void)driver_.context_push(context_); }
}

// ---- streams

dp_stream CudaDevice::create_stream(int priority)
{
  Current const current{*this};
  RelaxedCapture const relaxed{*this};
  // CUDA counts downwards: the greatest priority is the smallest number.
  auto const clamped  = std::clamp(-priority, greatest_priority_, least_priority_);
  cuda::Stream stream = nullptr;
  check(driver_.stream_create(&stream, cuda::stream_non_blocking, clamped),
        "cuStreamCreateWithPriority",
        clamped);
  return static_cast<dp_stream>(reinterpret_cast<std::uintptr_t>(stream));
}

void CudaDevice::destroy_stream(dp_stream stream) noexcept
{
  if (unusable() || stream <= 2) { return; }
  try {
    Current const current{*this};
    RelaxedCapture const relaxed{*this};
    (void)driver_.stream_destroy(as_stream(stream));
  } catch (Error const&) {
    // A broken context takes its streams along.
  }
}

void CudaDevice::synchronize(dp_stream stream)
{
  Current const current{*this};
  RelaxedCapture const relaxed{*this};
  check(driver_.stream_synchronize(as_stream(stream)), "cuStreamSynchronize", stream);
}

bool CudaDevice::is_capturing(dp_stream stream)
{
  Current const current{*this};
  int status        = cuda::capture_status_none;
  auto const result = driver_.stream_is_capturing(as_stream(stream), &status);
  // The legacy stream cannot be used while a stream that synchronises with it captures.
  if (result == cuda::error_stream_capture_implicit) { return true; }
  check(result, "cuStreamIsCapturing", stream);
  return status != cuda::capture_status_none;
}

void CudaDevice::wait_event(dp_stream stream, EventHandle event)
{
  Current const current{*this};
  check(driver_.stream_wait_event(as_stream(stream), as_event(event), 0),
        "cuStreamWaitEvent",
        stream,
        event);
}

void CudaDevice::write_value32(dp_stream stream, std::uint64_t address, std::uint32_t value)
{
  if (driver_.stream_write_value32 == nullptr) {
    fail(DP_ERR_UNSUPPORTED, "cuStreamWriteValue32 needs a driver of CUDA 11.7 or newer");
  }
  Current const current{*this};
  check(driver_.stream_write_value32(as_stream(stream), address, value, 0),
        "cuStreamWriteValue32",
        stream,
        address,
        value);
}

void CudaDevice::wait_value32(dp_stream stream, std::uint64_t address, std::uint32_t value)
{
  if (driver_.stream_wait_value32 == nullptr) {
    fail(DP_ERR_UNSUPPORTED, "cuStreamWaitValue32 needs a driver of CUDA 11.7 or newer");
  }
  Current const current{*this};
  check(
    driver_.stream_wait_value32(as_stream(stream), address, value, cuda::stream_wait_value_equal),
    "cuStreamWaitValue32",
    stream,
    address,
    value);
}

// ---- events

EventHandle CudaDevice::acquire_event()
{
  check_usable();
  {
    std::lock_guard const lock{event_mutex_};
    if (!events_.empty()) {
      auto* const event = events_.front();
      events_.pop_front();
      return static_cast<EventHandle>(reinterpret_cast<std::uintptr_t>(event));
    }
  }
  Current const current{*this};
  RelaxedCapture const relaxed{*this};
  cuda::Event event = nullptr;
  check(driver_.event_create(&event, cuda::event_disable_timing), "cuEventCreate");
  return static_cast<EventHandle>(reinterpret_cast<std::uintptr_t>(event));
}

void CudaDevice::release_event(EventHandle event) noexcept
{
  if (unusable() || event == 0) { return; }
  std::lock_guard const lock{event_mutex_};
  events_.push_back(as_event(event));
}

void CudaDevice::record(EventHandle event, dp_stream stream)
{
  Current const current{*this};
  check(driver_.event_record(as_event(event), as_stream(stream)), "cuEventRecord", event, stream);
}

bool CudaDevice::query(EventHandle event)
{
  Current const current{*this};
  RelaxedCapture const relaxed{*this};
  auto const result = driver_.event_query(as_event(event));
  if (result == cuda::error_not_ready) { return false; }
  check(result, "cuEventQuery", event);
  return true;
}

void CudaDevice::synchronize_event(EventHandle event)
{
  Current const current{*this};
  RelaxedCapture const relaxed{*this};
  check(driver_.event_synchronize(as_event(event)), "cuEventSynchronize", event);
}

// ---- bytes

void CudaDevice::copy_async(std::uint64_t destination,
                            std::uint64_t source,
                            std::size_t nbytes,
                            CopyKind kind,
                            dp_stream stream)
{
  if (nbytes == 0) { return; }
  Current const current{*this};
  auto* const queue = as_stream(stream);
  switch (kind) {
    case CopyKind::host_to_device:
      check(driver_.copy_host_to_device(destination, as_pointer(source), nbytes, queue),
            "cuMemcpyHtoDAsync",
            destination,
            source,
            nbytes,
            stream);
      break;
    case CopyKind::device_to_host:
      check(driver_.copy_device_to_host(as_pointer(destination), source, nbytes, queue),
            "cuMemcpyDtoHAsync",
            destination,
            source,
            nbytes,
            stream);
      break;
    case CopyKind::device_to_device:
      check(driver_.copy_device_to_device(destination, source, nbytes, queue),
            "cuMemcpyDtoDAsync",
            destination,
            source,
            nbytes,
            stream);
      break;
  }
}

void CudaDevice::fill_async(std::uint64_t destination,
                            std::uint8_t byte,
                            std::size_t nbytes,
                            dp_stream stream)
{
  if (nbytes == 0) { return; }
  Current const current{*this};
  check(driver_.fill_bytes(destination, byte, nbytes, as_stream(stream)),
        "cuMemsetD8Async",
        destination,
        byte,
        nbytes,
        stream);
}

std::uint64_t CudaDevice::allocate(std::size_t nbytes)
{
  expects(nbytes != 0, "device memory: nbytes must be at least 1");
  Current const current{*this};
  RelaxedCapture const relaxed{*this};
  cuda::DevicePointer address = 0;
  check(driver_.memory_allocate(&address, nbytes), "cuMemAlloc", nbytes);
  return address;
}

void CudaDevice::free(std::uint64_t address)
{
  Current const current{*this};
  RelaxedCapture const relaxed{*this};
  check(driver_.memory_free(address), "cuMemFree", address);
}

// ---- host memory

std::uint64_t CudaDevice::register_host(void* pointer, std::size_t nbytes, bool read_only)
{
  Current const current{*this};
  RelaxedCapture const relaxed{*this};
  auto flags = cuda::host_register_portable | cuda::host_register_device_map;
  if (read_only) {
    if (attribute(cuda::attribute_read_only_host_register_supported) == 0) {
      fail(DP_ERR_UNSUPPORTED,
           name_ + " cannot register read-only memory; give it memory that is mapped writable");
    }
    flags |= cuda::host_register_read_only;
  }
  auto const address = as_device_pointer(pointer);
  check(driver_.host_register(pointer, nbytes, flags), "cuMemHostRegister", address, nbytes, flags);
  cuda::DevicePointer mapped = 0;
  auto const result          = driver_.host_get_device_pointer(&mapped, pointer, 0);
  if (result != cuda::success) {
    (void)driver_.host_unregister(pointer);
    check(result, "cuMemHostGetDevicePointer", address);
  }
  (void)registered_.insert(pointer, nbytes, mapped);
  return mapped;
}

void CudaDevice::unregister_host(void* pointer) noexcept
{
  if (unusable()) { return; }
  registered_.remove(pointer);
  try {
    Current const current{*this};
    RelaxedCapture const relaxed{*this};
    (void)driver_.host_unregister(pointer);
  } catch (Error const&) {
    // A broken context has let go of the pages.
  }
}

HostTable::Entry CudaDevice::find_foreign(void const* pointer) const
{
  Current const current{*this};
  auto const address         = as_device_pointer(pointer);
  unsigned type              = 0;
  cuda::DevicePointer mapped = 0;
  cuda::DevicePointer start  = 0;
  std::size_t nbytes         = 0;
  std::array attributes{cuda::pointer_memory_type,
                        cuda::pointer_device_pointer,
                        cuda::pointer_range_start,
                        cuda::pointer_range_size};
  std::array<void*, 4> values{&type, &mapped, &start, &nbytes};
  // One question, of which nothing is an error: most memory is none of the driver's.
  auto const result = driver_.pointer_get_attributes(
    static_cast<unsigned>(attributes.size()), attributes.data(), values.data(), address);
  if (result != cuda::success || type != cuda::memory_type_host || start == 0) { return {}; }
  // The range is in the device's addresses, which need not be the host's.
  auto const offset = mapped - start;
  if (offset >= nbytes) { return {}; }
  return {{address - offset, nbytes}, mapped};
}

HostTable::Entry CudaDevice::find_registered(void const* pointer) const noexcept
{
  if (unusable() || pointer == nullptr) { return {}; }
  if (auto const own = registered_.find(pointer); own.range.nbytes != 0) { return own; }
  try {
    return find_foreign(pointer);
  } catch (Error const&) {
    return {};
  }
}

std::uint64_t CudaDevice::mapped_address(void const* pointer) noexcept
{ return find_registered(pointer).device_address; }

HostRange CudaDevice::registered_range(void const* pointer) noexcept
{ return find_registered(pointer).range; }

}  // namespace datapath
