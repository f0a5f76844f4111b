// SPDX-License-Identifier: Apache-2.0
/// @file
/// Loads, stores and fills that follow each other by streams and by tickets, against a model that carries
/// them out one by one.
#include "device_support.hpp"
#include "scheduler_support.hpp"

#include <array>
#include <memory>
#include <random>
#include <utility>

namespace datapath::testing {
namespace {

/// What is written and read: memory of the device, or a file. Whatever uses it follows its last use.
struct Resource {
  Bytes model;
  std::unique_ptr<DeviceMemory> memory;
  Ref<File> file;
  dp_stream last{0};   ///< The stream that comes after its last use.
  Ref<Ticket> ticket;  ///< Of its last use, where that was a transfer.

  [[nodiscard]] Place place() const { return file ? file_place(file) : memory->place(); }
};

class SchedulerRandomTest : public SchedulerTest, public ::testing::WithParamInterface<unsigned> {
 protected:
  static constexpr std::uint64_t nbytes = 3 * chunk - 1000;
  static constexpr std::size_t files    = 3;

  SchedulerRandomTest()
  {
    for (auto& stream : streams) { stream = device->create_stream(0); }
  }
  ~SchedulerRandomTest() override
  {
    for (auto const event : events) { device->release_event(event); }
    for (auto const stream : streams) { device->destroy_stream(stream); }
  }

  void make_resources(std::string const& faults)
  {
    auto const engine = make_engine(faults);
    for (std::size_t index = 0; index < files + 4; ++index) {
      Resource resource;
      resource.model = random_bytes(nbytes, index);
      resource.last  = streams.front();
      if (index < files) {
        auto const path = scratch.file(std::to_string(index));
        write_whole(path, resource.model);
        resource.file = engine->open(path, "r+");
      } else {
        resource.memory = std::make_unique<DeviceMemory>(device, nbytes);
        std::copy(resource.model.begin(), resource.model.end(), resource.memory->data());
      }
      resources.push_back(std::move(resource));
    }
  }

  void carry_out(int rounds)
  {
    for (int round = 0; round < rounds; ++round) {
      auto const stream = streams[below(streams.size())];
      auto const first  = below(resources.size());
      auto const second = (first + 1 + below(resources.size() - 1)) % resources.size();
      if (first >= files && below(4) == 0) {
        fill(resources[first], stream);
      } else {
        move(resources[first], resources[second], stream);
      }
    }
  }

  [[nodiscard]] std::uint64_t below(std::uint64_t limit) { return random() % limit; }

  /// What is then put on the stream comes after the resource's last use.
  void follow(Resource const& resource, dp_stream stream)
  {
    if (resource.last == stream) { return; }
    events.push_back(device->acquire_event());
    device->record(events.back(), resource.last);
    device->wait_event(stream, events.back());
  }

  void fill(Resource& resource, dp_stream stream)
  {
    auto const byte = static_cast<std::uint8_t>(random());
    follow(resource, stream);
    device->fill_async(resource.memory->address(), byte, nbytes, stream);
    resource.model.assign(nbytes, std::byte{byte});
    resource.last   = stream;
    resource.ticket = nullptr;
  }

  void move(Resource& to, Resource& from, dp_stream stream)
  {
    auto request     = move_bytes(to.place(), from.place(), nbytes);
    request.priority = static_cast<std::int32_t>(below(3));
    if (to.ticket && from.ticket && below(2) == 0) {
      request.after_tickets = {to.ticket, from.ticket};
    } else {
      follow(to, stream);
      follow(from, stream);
      request.after_streams = {stream};
    }
    auto const ticket = scheduler->transfer(std::move(request));
    // Refused where the transfer has failed already.
    (void)status_of([&] { wait_stream_deferred(*ticket, *device, stream); });
    to.model = from.model;
    for (auto* const used : {&to, &from}) {
      used->last   = stream;
      used->ticket = ticket;
    }
    tickets.push_back(ticket);
  }

  std::mt19937_64 random{GetParam()};
  ScratchDirectory scratch;
  std::array<dp_stream, 4> streams{};
  std::vector<Resource> resources;
  std::vector<Ref<Ticket>> tickets;
  std::vector<EventHandle> events;
};

TEST_P(SchedulerRandomTest, WhatFollowsByStreamsAndTicketsEqualsAModel)
{
  make_resources("any:slow@ms=1,p=0.3");
  carry_out(120);
  for (auto const& ticket : tickets) { ASSERT_EQ(result(ticket), nbytes); }
  for (auto const stream : streams) { device->synchronize(stream); }
  for (std::size_t index = 0; index < resources.size(); ++index) {
    auto const& resource = resources[index];
    auto const bytes =
      resource.file ? read_whole(scratch.file(std::to_string(index))) : resource.memory->bytes();
    EXPECT_TRUE(bytes == resource.model) << "of " << index;
  }
}

TEST_P(SchedulerRandomTest, WithErrorsEverythingEndsAllTheSame)
{
  make_resources("any:eio@p=0.05");
  carry_out(120);
  auto failed = 0;
  for (auto const& ticket : tickets) { failed += status(ticket) == DP_OK ? 0 : 1; }
  EXPECT_GT(failed, 0);
  for (auto const stream : streams) { device->synchronize(stream); }
  auto const described = scheduler->describe();
  EXPECT_NE(described.find("\"in_use\":0,\"ahead\":0"), std::string::npos) << described;
}

INSTANTIATE_TEST_SUITE_P(Seeds, SchedulerRandomTest, ::testing::Range(0U, 8U));

}  // namespace
}  // namespace datapath::testing
