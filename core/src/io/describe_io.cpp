// SPDX-License-Identifier: Apache-2.0
/// @file
/// The section "io" of describe(): which backends this machine can use, and why not the others.
#include "io/backend_choice.hpp"
#include "support/describe.hpp"
#include "support/settings.hpp"

namespace datapath {

namespace {

void describe_backend(JsonWriter& json, char const* name, std::string const& reason)
{ json.object(name).field("usable", reason.empty()).field("reason", reason).end(); }

void describe_io(JsonWriter& json, bool probe_devices)
{
  auto const uring = why_not("uring");
  json.field("requested", setting("io.backend").value)
    .field("auto", uring.empty() ? "uring" : "threads")
    .field("liburing", DATAPATH_HAVE_LIBURING != 0)
    .object("backends");
  describe_backend(json, "uring", uring);
  describe_backend(json, "threads", why_not("threads"));
  // Trying cuFile opens the CUDA driver.
  if (probe_devices) {
    describe_backend(json, "cufile", why_not("cufile"));
  } else {
    json.object("cufile")
      .null("usable")
      .field("reason", "not tried: that opens the GPU's driver")
      .end();
  }
  json.end();
}

DescribeRegistration const registered{"io", describe_io};

}  // namespace

}  // namespace datapath
