// SPDX-License-Identifier: Apache-2.0
/// @file
/// The structs of DLPack, the exchange format of array libraries, declared here to need no header of it.
/// Source: https://dmlc.github.io/dlpack/latest/c_api.html (version 1.0; layouts are frozen by it).
#pragma once

#include <cstdint>

namespace datapath::python::dlpack {

enum DeviceType : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3, cuda_managed = 13 };

struct Device {
  std::int32_t type;
  std::int32_t ordinal;
};

struct DataType {
  std::uint8_t
    code;  ///< 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool, 7..14 float8, 15..17 smaller
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  ///< In elements; NULL is compact and row-major.
  std::uint64_t byte_offset;
};

struct ManagedTensor {
  Tensor tensor;
  void* context;
  void (*deleter)(ManagedTensor*);
};

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

struct VersionedManagedTensor {
  Version version;
  void* context;
  void (*deleter)(VersionedManagedTensor*);
  std::uint64_t flags;
  Tensor tensor;
};

constexpr std::uint64_t flag_read_only = 1;

constexpr char const* name           = "dltensor";
constexpr char const* used_name      = "used_dltensor";
constexpr char const* versioned_name = "dltensor_versioned";
constexpr char const* used_versioned = "used_dltensor_versioned";

}  // namespace datapath::python::dlpack
