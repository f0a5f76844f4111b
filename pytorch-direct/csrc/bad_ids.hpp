// SPDX-License-Identifier: Apache-2.0
/// @file
/// How word of ids out of range comes from the kernels of a device to the host, without any
/// waiting.
///
/// A kernel keeps the first bad position in a slot of device memory; its last block copies it into
/// a record in pinned memory, which the host looks at when it is called next.
#pragma once

#include "gather_arguments.hpp"

#include <cstdint>
#include <optional>

namespace pytorch_direct {

struct BadIdReport {
  std::int64_t position;
  std::int64_t id;
  std::int64_t rows;
  std::int64_t count;
  bool wrap;
  bool scatter;
};

/// The sink of the next kernel on `stream`: one slot a stream, whose kernels do not overlap; one of
/// its own for a kernel that is recorded into a graph.
[[nodiscard]] BadIdSink bad_id_sink(int device, std::uintptr_t stream);

/// Whether any kernel of this process could have left word on the device.
[[nodiscard]] bool uses_bad_ids(int device);

/// The earliest launch that met a bad id, as far as kernels have ended; all reports are dropped.
/// Touches no CUDA function.
[[nodiscard]] std::optional<BadIdReport> take_bad_ids(int device);

}  // namespace pytorch_direct
