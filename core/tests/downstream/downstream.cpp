// SPDX-License-Identifier: Apache-2.0
/// @file
/// A program over the public headers alone: memory, a file, a volume, a transfer, and their errors.
#include <datapath/datapath.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace dp = datapath::client;

namespace {

void expect(bool condition, char const* what)
{
  if (!condition) {
    std::fprintf(stderr, "downstream: not so: %s\n", what);
    std::exit(1);
  }
}

template <class Error, class Body>
void expect_error(char const* what, Body body)
{
  try {
    body();
  } catch (Error const& error) {
    expect(std::string{error.what()} != "", what);
    return;
  }
  expect(false, what);
}

void use_memory()
{
  dp_pool_options options{};
  options.budget = dp::parse_bytes("8MiB");
  dp::Pool const pool{options};
  auto buffer = pool.allocate(1000);
  std::ranges::fill(buffer.bytes(), std::byte{7});
  expect(pool.stats().requested == 1000, "the pool counts what was asked for");
  expect_error<dp::BudgetError>("a pool keeps to its budget",
                                [&] { (void)pool.allocate(1U << 30U); });
  buffer = {};
  expect(pool.stats().live_buffers == 0, "a buffer goes back with its last reference");

  bool released = false;
  std::vector<std::byte> mine(10'000);
  struct Note {
    bool* flag;
    explicit Note(bool* at) : flag{at} {}
    Note(Note&& other) noexcept : flag{std::exchange(other.flag, nullptr)} {}
    Note(Note const&)            = delete;
    Note& operator=(Note const&) = delete;
    Note& operator=(Note&&)      = delete;
    ~Note()
    {
      if (flag != nullptr) { *flag = true; }
    }
  };
  {
    auto const registered =
      dp::register_memory(mine.data(), mine.size(), {}, dp::own(Note{&released}));
    expect(registered.info().is_registered != 0, "registered memory says so");
    expect(registered.info().pointer == mine.data(), "memory is registered in place");
  }
  expect(released, "an owner is released with the last reference");
}

void use_disk(std::string const& folder)
{
  dp_engine_options options{};
  options.backend = "threads";
  dp::Engine const engine{options};
  auto const path = folder + "/downstream";
  std::string text{"hello, disk"};
  {
    auto const file = engine.open(path, "w+");
    dp_io_request const request{text.data(), text.size(), 3};
    expect(file.write({&request, 1}).result() == text.size(), "a write moves all its bytes");
    std::string back(text.size(), ' ');
    dp_io_request const again{back.data(), back.size(), 3};
    expect(file.read({&again, 1}).result(std::chrono::seconds{10}) == text.size(), "a read too");
    expect(back == text, "what was written is read");
    expect(file.size() == text.size() + 3, "the size counts the hole");
  }
  try {
    (void)engine.open(folder + "/missing", "r");
    expect(false, "a missing file is an error");
  } catch (dp::IoError const& error) {
    expect(error.os_errno() == ENOENT && error.path() == folder + "/missing",
           "it names errno and file");
  }
  dp_volume_options space{};
  space.capacity = dp::parse_bytes("4MiB");
  dp::Volume const volume{{folder}, space};
  auto const extent = volume.allocate(text.size());
  dp_io_request const request{text.data(), text.size(), 0};
  expect(extent.write({&request, 1}).result() == text.size(), "extents are written");
  expect_error<dp::OutOfSpaceError>("a volume keeps to its capacity",
                                    [&] { (void)volume.allocate(1U << 30U); });
}

void use_scheduler()
{
  dp::Device const device{"null"};
  dp::Scheduler const scheduler{device};
  std::string from{"over and back"};
  std::string to(from.size(), ' ');
  auto const there = device.allocate(from.size());
  auto const up =
    scheduler.transfer(dp::device_place(there), dp::host_place(from.data()), from.size());
  auto* const before = up.get();
  dp_transfer_options options{};
  options.after_tickets      = &before;
  options.after_ticket_count = 1;
  auto const down =
    scheduler.transfer(dp::host_place(to.data()), dp::device_place(there), to.size(), options);
  expect(down.result() == to.size() && to == from, "bytes go to the device and back");
  expect(up.done(), "a transfer comes after the one that it was told to");
  device.free(there);
}

}  // namespace

int main(int count, char** arguments)
{
  expect(count == 2, "usage: downstream FOLDER");
  use_memory();
  use_disk(arguments[1]);
  use_scheduler();
  expect(dp::get_setting("io.depth").source != "", "settings are readable");
  expect(dp::describe().find("\"version\"") != std::string::npos, "the library describes itself");
  std::puts("downstream: all well");
  return 0;
}
