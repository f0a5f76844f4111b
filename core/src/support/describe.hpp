// SPDX-License-Identifier: Apache-2.0
/// @file
/// What dp_describe says: each part of the library registers a section about itself.
#pragma once

#include "support/json.hpp"

#include <string>

namespace datapath {

/// Writes fields into an open object. Opens a device only if `probe_devices`; it may throw, and the
/// section then carries the error's text.
using DescribeSection = void (*)(JsonWriter& json, bool probe_devices);

/// A static object of this type adds a section under its name:
/// `DescribeRegistration const registered{"io", describe_io};`
class DescribeRegistration {
 public:
  DescribeRegistration(char const* name, DescribeSection section);
};

/// All sections, by name, as one JSON object.
[[nodiscard]] std::string describe(bool probe_devices);

}  // namespace datapath
