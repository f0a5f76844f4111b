// SPDX-License-Identifier: Apache-2.0
/// @file
/// libcufile, loaded at run time with our own declarations: the functions, or the reason why there
/// are none.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace datapath::cufile {

using Handle = void*;

/// CUfileError_t: both zero is success.
struct Outcome {
  int operation;
  int cuda;
  [[nodiscard]] bool ok() const noexcept { return operation == 0; }
};

/// CUfileDescr_t for a file descriptor.
struct FileDescription {
  int type;
  union {
    int fd;
    void* handle;
  } file;
  void const* operations;
};
inline constexpr int type_descriptor = 1;

/// CUfileDrvProps_t, with room for what later versions append.
struct Properties {
  unsigned nvfs_major;
  unsigned nvfs_minor;
  std::size_t poll_threshold;
  std::size_t max_direct_io;
  unsigned driver_status;
  unsigned driver_control;
  unsigned features;
  unsigned max_device_cache;
  unsigned buffer_cache;
  unsigned max_device_pinned;
  unsigned max_batch;
  unsigned max_batch_timeout;
  std::byte later[256];
};
inline constexpr unsigned feature_p2p = 1U << 4U;

struct Library {
  Outcome (*driver_open)(){nullptr};
  Outcome (*driver_properties)(Properties*){nullptr};
  Outcome (*handle_register)(Handle*, FileDescription*){nullptr};
  void (*handle_deregister)(Handle){nullptr};
  ssize_t (*read)(Handle, void*, std::size_t, off_t, off_t){nullptr};
  ssize_t (*write)(Handle, void const*, std::size_t, off_t, off_t){nullptr};
};

/// The library with its driver open; the first call loads it. Throws DP_ERR_UNSUPPORTED with the
/// reason.
[[nodiscard]] Library const& library();

/// Bytes go straight between drive and GPU (nvidia-fs or peer-to-peer DMA), not through host memory
/// as in cuFile's compatibility mode.
[[nodiscard]] bool is_direct(Library const& library) noexcept;

/// "cuFile error 5008, CUDA error 0".
[[nodiscard]] std::string describe_outcome(Outcome outcome);

}  // namespace datapath::cufile
