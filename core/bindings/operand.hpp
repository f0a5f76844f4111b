// SPDX-License-Identifier: Apache-2.0
/// @file
/// A buffer argument: anything contiguous with the buffer protocol or DLPack, a torch tensor, or memory of
/// this library, on the CPU or on a device.
#pragma once

#include "graveyard.hpp"

#include <datapath/datapath.hpp>
#include <pybind11/pybind11.h>

#include <cstdint>

namespace datapath::python {

namespace py = pybind11;

enum class MemoryKind : std::uint8_t { host, cuda, null_device };

struct Operand {
  std::uint64_t address{0};
  std::uint64_t nbytes{0};
  MemoryKind kind{MemoryKind::host};
  int ordinal{-1};          ///< Of a CUDA device.
  bool from_torch{false};   ///< A torch tensor: work on torch's current stream may use it.
  bool from_dlpack{false};  ///< Its producer's work is ordered before the legacy default stream.

  [[nodiscard]] bool is_host() const noexcept { return kind == MemoryKind::host; }
  [[nodiscard]] void* pointer() const noexcept
  { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)); }
};

enum class Access : std::uint8_t { read, write };

/// The memory behind `object`, which `kept` holds. `access` says what will be done to the memory.
/// TypeError for what has no memory; ValueError or BufferError for memory that is not contiguous, or is
/// read-only and to be written.
[[nodiscard]] Operand to_operand(py::handle object, Access access, Kept& kept);

/// torch.Tensor if the program has imported torch, else nothing.
[[nodiscard]] bool is_torch_tensor(py::handle object);
[[nodiscard]] Operand torch_operand(py::handle tensor);
/// The handle of torch's current stream on a device.
[[nodiscard]] dp_stream torch_current_stream(int ordinal);

[[nodiscard]] Operand buffer_protocol_operand(py::handle object, Access access, Kept& kept);
[[nodiscard]] Operand dlpack_operand(py::handle object, Access access, Kept& kept);

}  // namespace datapath::python
