// SPDX-License-Identifier: Apache-2.0
/// @file
/// Helpers for tests of the scheduler on the null device.
#pragma once

#include "io/file.hpp"
#include "patience.hpp"
#include "streams/null_device.hpp"
#include "streams/scheduler.hpp"
#include "streams/stream_wait.hpp"
#include "support/settings.hpp"

#include <gtest/gtest.h>

#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace datapath::testing {

inline constexpr std::uint64_t forever = UINT64_MAX;
inline constexpr std::uint64_t KiB     = 1024;
inline constexpr std::uint64_t MiB     = 1024 * KiB;

using Bytes = std::vector<std::byte>;

inline Bytes random_bytes(std::size_t nbytes, std::uint64_t seed)
{
  std::mt19937_64 generator{seed};
  Bytes bytes(nbytes);
  for (auto& byte : bytes) { byte = static_cast<std::byte>(generator()); }
  return bytes;
}

inline Place host_place(void const* pointer)
{
  Place place;
  place.kind    = DP_HOST;
  place.address = reinterpret_cast<std::uint64_t>(pointer);
  return place;
}

inline Place device_place(std::uint64_t address)
{
  Place place;
  place.kind    = DP_DEVICE;
  place.address = address;
  return place;
}

inline Place file_place(Ref<File> file, std::uint64_t offset = 0)
{
  Place place;
  place.kind   = DP_FILE;
  place.file   = std::move(file);
  place.offset = offset;
  return place;
}

/// Memory of a device, filled at will; on the null device the host can look at it.
class DeviceMemory {
 public:
  DeviceMemory(Ref<Device> device, std::size_t nbytes)
    : device_{std::move(device)}, address_{device_->allocate(nbytes)}, nbytes_{nbytes}
  { std::fill_n(data(), nbytes, std::byte{0}); }
  ~DeviceMemory() { device_->free(address_); }
  DeviceMemory(DeviceMemory const&)            = delete;
  DeviceMemory& operator=(DeviceMemory const&) = delete;

  [[nodiscard]] std::uint64_t address() const { return address_; }
  [[nodiscard]] std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
  [[nodiscard]] Bytes bytes() const { return {data(), data() + nbytes_}; }
  [[nodiscard]] Place place(std::uint64_t offset = 0) const
  { return device_place(address_ + offset); }

 private:
  Ref<Device> device_;
  std::uint64_t address_;
  std::size_t nbytes_;
};

/// Holds a stream of the null device until the test says so.
class StreamGate {
 public:
  StreamGate(Ref<NullDevice> device, dp_stream stream) : device_{std::move(device)}, stream_{stream}
  { device_->wait_value32(stream_, reinterpret_cast<std::uint64_t>(&word_), 1); }
  ~StreamGate() { open(); }
  StreamGate(StreamGate const&)            = delete;
  StreamGate& operator=(StreamGate const&) = delete;
  /// Also waits for the stream, which looks at the word until then.
  void open()
  {
    if (std::atomic_ref{word_}.exchange(1) == 0) { device_->synchronize(stream_); }
  }
  /// For a stream that then waits for something else; the word must outlive that.
  void open_without_waiting() { std::atomic_ref{word_}.store(1); }

 private:
  Ref<NullDevice> device_;
  dp_stream stream_;
  alignas(4) std::uint32_t word_{0};
};

/// Host memory registered with a device.
class PinnedBytes {
 public:
  PinnedBytes(Ref<Device> device, std::size_t nbytes)
    : device_{std::move(device)},
      nbytes_{(nbytes + 4095) / 4096 * 4096},
      data_{static_cast<std::byte*>(std::aligned_alloc(4096, nbytes_))}
  {
    std::fill_n(data_, nbytes_, std::byte{0});
    (void)device_->register_host(data_, nbytes_, false);
  }
  ~PinnedBytes()
  {
    device_->unregister_host(data_);
    std::free(data_);
  }
  PinnedBytes(PinnedBytes const&)            = delete;
  PinnedBytes& operator=(PinnedBytes const&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  Ref<Device> device_;
  std::size_t nbytes_;
  std::byte* data_;
};

/// Counts how often an owner is released.
class OwnerProbe {
 public:
  [[nodiscard]] Owner owner()
  {
    return Owner{
      {[](void* context) { static_cast<OwnerProbe*>(context)->released_.fetch_add(1); }, this}};
  }
  [[nodiscard]] int released() const { return released_.load(); }

 private:
  std::atomic<int> released_{0};
};

/// A directory that is gone afterwards.
class ScratchDirectory {
 public:
  ScratchDirectory()
  {
    auto pattern = (std::filesystem::temp_directory_path() / "datapath-XXXXXX").string();
    path_        = ::mkdtemp(pattern.data());
  }
  ~ScratchDirectory()
  {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(ScratchDirectory const&)            = delete;
  ScratchDirectory& operator=(ScratchDirectory const&) = delete;
  [[nodiscard]] std::string file(std::string const& name) const { return path_ + "/" + name; }
  [[nodiscard]] std::string const& path() const { return path_; }

 private:
  std::string path_;
};

inline Ref<Engine> make_engine(std::string const& faults = {}, std::uint32_t threads = 0)
{
  EngineOptions options;
  options.threads = threads;
  options.backend = "threads";
  options.faults  = faults;
  return make_ref<Engine>(options);
}

inline Bytes read_whole(std::string const& path)
{
  Bytes bytes(std::filesystem::file_size(path));
  auto* const stream = std::fopen(path.c_str(), "rb");
  EXPECT_EQ(std::fread(bytes.data(), 1, bytes.size(), stream), bytes.size());
  std::fclose(stream);
  return bytes;
}

inline void write_whole(std::string const& path, Bytes const& bytes)
{
  auto* const stream = std::fopen(path.c_str(), "wb");
  EXPECT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), stream), bytes.size());
  std::fclose(stream);
}

/// A null device of its own and a scheduler with small chunks on it.
class SchedulerTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t chunk = 64 * KiB;

  ~SchedulerTest() override
  {
    if (scheduler) { scheduler->close(); }
  }

  static SchedulerOptions small()
  {
    SchedulerOptions options;
    options.chunk_bytes = chunk;
    options.chunks      = 3;
    options.credits     = 4 * chunk;
    return options;
  }

  [[nodiscard]] static TransferRequest move_bytes(Place destination,
                                                  Place source,
                                                  std::uint64_t nbytes)
  {
    TransferRequest request;
    request.destination = std::move(destination);
    request.source      = std::move(source);
    request.nbytes      = nbytes;
    return request;
  }

  /// Bytes moved, or throws the error; fails the test where nothing ends.
  static std::uint64_t result(Ref<Ticket> const& ticket)
  {
    if (!ticket->wait(patience_ns)) {
      ADD_FAILURE() << "the ticket does not end";
      return 0;
    }
    return ticket->bytes();
  }

  /// Fails the test where the condition does not come true.
  template <class Condition>
  static void wait_until(Condition condition)
  {
    for (int round = 0; round < 30'000 && !condition(); ++round) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    ASSERT_TRUE(condition());
  }

  static dp_status status(Ref<Ticket> const& ticket)
  {
    EXPECT_TRUE(ticket->wait(patience_ns)) << "the ticket does not end";
    return ticket->state();
  }

  Ref<NullDevice> device   = make_ref<NullDevice>();
  Ref<Scheduler> scheduler = make_ref<Scheduler>(device, small());
};

/// One record of a scheduler's trace, read back from its description.
struct Hop {
  std::string lane;
  std::uint64_t transfer{0};
  std::uint64_t offset{0};
  std::uint64_t nbytes{0};
  std::uint64_t start{0};
  std::uint64_t end{0};
};

inline std::vector<Hop> trace_of(Scheduler const& scheduler)
{
  auto const text = scheduler.describe();
  std::vector<Hop> hops;
  auto const number = [&](std::size_t from, char const* key) {
    auto const name = std::string{"\""} + key + "\":";
    return std::stoull(text.substr(text.find(name, from) + name.size()));
  };
  auto at = text.find("\"trace\"");
  while ((at = text.find("{\"lane\":\"", at + 1)) != std::string::npos) {
    auto const name = at + 9;
    hops.push_back({text.substr(name, text.find('"', name) - name),
                    number(at, "transfer"),
                    number(at, "offset"),
                    number(at, "nbytes"),
                    number(at, "start"),
                    number(at, "end")});
  }
  return hops;
}

}  // namespace datapath::testing
