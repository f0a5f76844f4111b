// SPDX-License-Identifier: Apache-2.0
/// @file
/// The section "devices" of describe: the CUDA driver, its devices if they may be probed, what is
/// open.
#include "shim/cuda.hpp"
#include "streams/device.hpp"
#include "support/describe.hpp"

namespace datapath {

namespace {

char const* state_name(cuda::State state)
{
  switch (state) {
    case cuda::State::untried:
      return "untried";
    case cuda::State::missing:
      return "missing";
    case cuda::State::unusable:
      return "unusable";
    case cuda::State::ready:
      return "ready";
  }
  return "unknown";
}

void describe_devices(JsonWriter& json, bool probe_devices)
{
  int count = 0;
  if (probe_devices) {
    try {
      count = cuda::device_count();
    } catch (Error const&) {
      // The status below says why.
    }
  }
  auto const status = cuda::status();
  json.object("driver").field("state", state_name(status.state));
  if (status.state == cuda::State::ready) {
    json.field("cuda_version", status.version);
  } else if (status.state == cuda::State::untried) {
    json.field("reason", "nobody opened a CUDA device yet");
  } else {
    json.field("reason", status.reason);
  }
  json.end();
  json.array("cuda");
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    json.object();
    json.field("ordinal", ordinal).field("name", cuda::device_name(ordinal));
    json.end();
  }
  json.end();
  json.array("open");
  for (auto const& name : Device::open_names()) { json.field({}, name); }
  json.end();
}

DescribeRegistration const devices{"devices", describe_devices};

}  // namespace

}  // namespace datapath
