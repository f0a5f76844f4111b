// SPDX-License-Identifier: Apache-2.0
#include "io_support.hpp"
#include "support/settings.hpp"

#include <thread>

namespace datapath::io_testing {
namespace {

struct EngineTest : EachBackend {
  std::string const path_ = folder_.file("file");
};

TEST_P(EngineTest, options_out_of_their_domain_are_invalid)
{
  EngineOptions deep;
  deep.depth = 1U << 20U;
  EXPECT_EQ(error_of([&] { (void)engine(deep); }).status, DP_ERR_INVALID);
  EngineOptions wide;
  wide.threads = 10'000;
  EXPECT_EQ(error_of([&] { (void)engine(wide); }).status, DP_ERR_INVALID);
  EngineOptions direct;
  direct.direct = 2;
  EXPECT_EQ(error_of([&] { (void)engine(direct); }).status, DP_ERR_INVALID);
}

TEST_P(EngineTest, closed_engine_refuses_to_open_and_its_files_refuse_requests)
{
  auto const owner = engine();
  auto const file  = owner->open(path_, "w+");
  Memory const one{1};
  (void)write(*file, one, 0);
  owner->close();
  owner->close();
  EXPECT_EQ(error_of([&] { (void)owner->open(path_, "r"); }).status, DP_ERR_CLOSED);
  EXPECT_EQ(error_of([&] { (void)read(*file, one, 0); }).status, DP_ERR_CLOSED);
  EXPECT_EQ(error_of([&] { (void)file->size(); }).status, DP_ERR_CLOSED);
  file->close();
}

TEST_P(EngineTest, close_ends_what_is_in_flight_first)
{
  auto const owner = faulty_engine("write:slow@ms=100");
  auto const file  = owner->open(path_, "w+");
  Memory const content{3U << 20U};
  content.fill_pattern(1);
  auto const one    = request(content, 0);
  auto const ticket = file->write({&one, 1}, Owner{});
  owner->close();
  EXPECT_EQ(ticket->state(), DP_OK);
  EXPECT_EQ(ticket->bytes(), content.size());
}

TEST_P(EngineTest, describe_names_backend_limits_and_plan)
{
  EngineOptions options;
  options.depth   = 7;
  options.threads = 2;
  options.faults  = "read:eio@nth=1000";
  auto const text = engine(options)->describe();
  for (std::string const& want : {"\"backend\":\"" + std::string{GetParam()} + "\"",
                                  std::string{"\"depth\":7"},
                                  std::string{"\"threads\":2"},
                                  std::string{"read:eio@nth=1000"}}) {
    EXPECT_NE(text.find(want), std::string::npos) << want << " in " << text;
  }
}

TEST_P(EngineTest, many_threads_share_one_engine_and_one_file)
{
  auto const shared          = engine();
  auto const file            = shared->open(path_, "w+");
  constexpr std::size_t part = 300'007;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (std::size_t id = 0; id < 8; ++id) {
    threads.emplace_back([&, id] {
      Memory const out{part};
      Memory const in{part, id % 2};
      for (std::size_t round = 0; round < 10; ++round) {
        out.fill_pattern(id * 100 + round);
        (void)write(*file, out, id * part);
        (void)read(*file, in, id * part);
        wrong += in == out ? 0 : 1;
      }
    });
  }
  for (auto& thread : threads) { thread.join(); }
  EXPECT_EQ(wrong, 0);
}

TEST_P(EngineTest, tiny_byte_cap_and_depth_hold_requests_back_and_never_for_good)
{
  EngineOptions options;
  options.depth              = 1;
  options.threads            = 1;
  options.max_inflight_bytes = 1;
  auto const file            = engine(options)->open(path_, "w+");
  Memory const out{5U << 20U};
  Memory const in{5U << 20U};
  out.fill_pattern(2);
  std::vector<Ref<Ticket>> tickets;
  auto const one = request(out, 0);
  for (int i = 0; i < 20; ++i) { tickets.push_back(file->write({&one, 1}, Owner{})); }
  for (auto const& ticket : tickets) { EXPECT_EQ(result(ticket), out.size()); }
  EXPECT_EQ(read(*file, in, 0), in.size());
  EXPECT_TRUE(in == out);
}

TEST_P(EngineTest, thousands_of_small_requests_pass_a_shallow_queue)
{
  EngineOptions options;
  options.depth   = 4;
  options.threads = 2;
  auto const file = engine(options)->open(path_, "w+");
  Memory const content{4096U * 1000U};
  content.fill_pattern(3);
  (void)write(*file, content, 0);
  Memory const in{4096U * 1000U};
  std::vector<dp_io_request> requests;
  for (std::size_t i = 0; i < 1000; ++i) {
    auto const at = i * 617 % 1000 * 4096;
    requests.push_back({in.data() + at, 4096, at});
  }
  EXPECT_EQ(result(file->read(requests, Owner{})), in.size());
  EXPECT_TRUE(in == content);
}

TEST_P(EngineTest, last_reference_lets_threads_and_descriptors_go)
{
  auto const count = [](char const* what) {
    std::size_t entries = 0;
    for (auto const& entry : std::filesystem::directory_iterator{what}) {
      entries += entry.path().empty() ? 0U : 1U;
    }
    return entries;
  };
  // A sanitizer starts a thread of its own with the first of ours.
  std::thread{[] {}}.join();
  (void)engine();
  auto const threads     = count("/proc/self/task");
  auto const descriptors = count("/proc/self/fd");
  for (int round = 0; round < 5; ++round) {
    auto file = engine()->open(path_, "w+");
    Memory const content{2U << 20U};
    content.fill_pattern(4);
    auto const one    = request(content, 0);
    auto const ticket = file->write({&one, 1}, Owner{});
    // The I/O thread drops the last reference, to its own engine.
    file = nullptr;
    EXPECT_EQ(result(ticket), content.size());
  }
  auto const until = std::chrono::steady_clock::now() + std::chrono::nanoseconds{patience_ns};
  while ((count("/proc/self/task") > threads || count("/proc/self/fd") > descriptors) &&
         std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
  EXPECT_LE(count("/proc/self/task"), threads);
  EXPECT_LE(count("/proc/self/fd"), descriptors);
}

FOR_EACH_BACKEND(EngineTest);

TEST(EngineChoice, unknown_backend_is_invalid)
{
  EngineOptions options;
  options.backend = "spdk";
  EXPECT_EQ(error_of([&] { (void)make_ref<Engine>(options); }).status, DP_ERR_INVALID);
}

TEST(EngineChoice, cufile_by_name_serves_or_says_why_not)
{
  EngineOptions options;
  options.backend  = "cufile";
  auto const error = error_of([&] { (void)make_ref<Engine>(options); });
  if (error.status == DP_OK) { return; }
  EXPECT_EQ(error.status, DP_ERR_UNSUPPORTED);
  EXPECT_EQ(error.message.find("the backend 'cufile' cannot serve: "), 0U) << error.message;
}

TEST(EngineChoice, auto_always_serves)
{
  EngineOptions options;
  options.backend = "auto";
  EXPECT_NE(make_ref<Engine>(options)->describe().find("\"requested\":\"auto\""),
            std::string::npos);
}

TEST(EngineShared, is_one_until_it_is_closed)
{
  auto const first = Engine::shared();
  EXPECT_EQ(first, Engine::shared());
  first->close();
  auto const second = Engine::shared();
  EXPECT_FALSE(first == second);
  second->check_usable();
}

}  // namespace
}  // namespace datapath::io_testing
