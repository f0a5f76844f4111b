// SPDX-License-Identifier: Apache-2.0
#include "bad_ids.hpp"
#include "cuda_check.cuh"

#include <atomic>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace pytorch_direct {
namespace {

constexpr std::size_t kSlotsPerSlab = 256;

/// Slots with their records. Never given back: kernels may be running when the process ends.
struct Slab {
  BadIdSlot* slots     = nullptr;
  BadIdRecord* records = nullptr;
  std::size_t used     = 0;
};

struct Device {
  std::mutex mutex;
  std::vector<Slab> slabs;
  std::map<std::uintptr_t, BadIdSink> of_stream;
  unsigned long long sequence = 0;
  std::atomic<unsigned long long*> pending{nullptr};
};

Device& device_state(int device)
{
  static std::mutex mutex;
  static auto* const devices = new std::map<int, std::unique_ptr<Device>>;
  std::lock_guard const lock{mutex};
  auto& state = (*devices)[device];
  if (!state) { state = std::make_unique<Device>(); }
  return *state;
}

void* pinned_zeros(std::size_t bytes)
{
  void* memory = nullptr;
  check_cuda(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable),
             "allocating pinned memory for reports of bad ids");
  std::memset(memory, 0, bytes);
  return memory;
}

Slab make_slab()
{
  Slab slab;
  void* slots      = nullptr;
  auto const bytes = kSlotsPerSlab * sizeof(BadIdSlot);
  check_cuda(cudaMalloc(&slots, bytes), "allocating device memory for reports of bad ids");
  slab.slots   = static_cast<BadIdSlot*>(slots);
  slab.records = static_cast<BadIdRecord*>(pinned_zeros(kSlotsPerSlab * sizeof(BadIdRecord)));
  // A stream of its own: the default stream may be recording, or be waited for by everyone.
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
             "cudaStreamCreateWithFlags");
  check_cuda(cudaMemsetAsync(slots, 0, bytes, stream), "cudaMemsetAsync");
  check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  return slab;
}

/// The caller holds the device's lock.
BadIdSink new_sink(Device& state, int device)
{
  if (state.slabs.empty() || state.slabs.back().used == kSlotsPerSlab) {
    DeviceGuard const guard{device};
    RelaxedCapture const relaxed;
    if (state.pending.load() == nullptr) {
      state.pending.store(
        static_cast<unsigned long long*>(pinned_zeros(sizeof(unsigned long long))));
    }
    state.slabs.push_back(make_slab());
  }
  auto& slab       = state.slabs.back();
  auto const index = slab.used++;
  return {slab.slots + index, slab.records + index, state.pending.load(), 0};
}

}  // namespace

BadIdSink bad_id_sink(int device, std::uintptr_t stream)
{
  auto capturing = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(reinterpret_cast<cudaStream_t>(stream), &capturing),
             "cudaStreamIsCapturing");
  auto& state = device_state(device);
  std::lock_guard const lock{state.mutex};
  BadIdSink sink;
  if (capturing != cudaStreamCaptureStatusNone) {
    sink = new_sink(state, device);
  } else if (auto const found = state.of_stream.find(stream); found != state.of_stream.end()) {
    sink = found->second;
  } else {
    sink = state.of_stream[stream] = new_sink(state, device);
  }
  sink.sequence = ++state.sequence;
  return sink;
}

bool uses_bad_ids(int device)
{ return device_state(device).pending.load() != nullptr; }

std::optional<BadIdReport> take_bad_ids(int device)
{
  auto& state         = device_state(device);
  auto* const pending = state.pending.load();
  if (pending == nullptr) { return std::nullopt; }
  std::atomic_ref<unsigned long long> const flag{*pending};
  if (flag.load(std::memory_order_acquire) == 0) { return std::nullopt; }
  std::lock_guard const lock{state.mutex};
  // Cleared first: what arrives while the records are read sets it again.
  flag.store(0);
  BadIdRecord const* earliest = nullptr;
  std::vector<BadIdRecord*> full;
  for (auto const& slab : state.slabs) {
    for (std::size_t i = 0; i < slab.used; ++i) {
      auto& record = slab.records[i];
      if (std::atomic_ref<unsigned long long>{record.full}.load(std::memory_order_acquire) == 0) {
        continue;
      }
      full.push_back(&record);
      if (earliest == nullptr || record.sequence < earliest->sequence) { earliest = &record; }
    }
  }
  std::optional<BadIdReport> report;
  if (earliest != nullptr) {
    report = BadIdReport{earliest->position,
                         earliest->id,
                         earliest->rows,
                         earliest->count,
                         earliest->wrap != 0,
                         earliest->scatter != 0};
  }
  for (auto* const record : full) {
    std::atomic_ref<unsigned long long>{record->full}.store(0, std::memory_order_release);
  }
  return report;
}

}  // namespace pytorch_direct
