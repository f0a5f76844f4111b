// SPDX-License-Identifier: Apache-2.0
/// @file
/// The section "memory" of describe: what can still be had, the pools there are, what is
/// registered.
#include "memory/available.hpp"
#include "memory/pool_list.hpp"
#include "memory/registration.hpp"
#include "support/describe.hpp"

namespace datapath {

namespace {

void describe_memory(JsonWriter& json, bool /*probe_devices*/)
{
  auto const room = available_memory();
  json.field("available", room.bytes).field("bound", room.bound);
  json.array("pools");
  for (auto const& pool : live_pools()) {
    auto const stats = pool->stats();
    json.object()
      .field("device", pool->device() == nullptr ? "none" : pool->device()->name())
      .field("pinned", stats.is_pinned != 0)
      .field("budget", stats.budget)
      .field("backed", stats.backed)
      .field("allocated", stats.allocated)
      .field("pending", stats.pending)
      .field("peak_allocated", stats.peak_allocated)
      .field("live_buffers", stats.live_buffers)
      .field("pieces", stats.pieces)
      .end();
  }
  json.end();
  auto const registered = registration_stats();
  json.object("registered")
    .field("bytes", registered.bytes)
    .field("spans", registered.spans)
    .field("buffers", registered.buffers)
    .end();
}

DescribeRegistration const memory{"memory", describe_memory};

}  // namespace

}  // namespace datapath
