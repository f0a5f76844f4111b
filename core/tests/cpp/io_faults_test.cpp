// SPDX-License-Identifier: Apache-2.0
#include "io/fault_plan.hpp"
#include "io_support.hpp"
#include "support/settings.hpp"

#include <thread>

namespace datapath::io_testing {
namespace {

struct FaultsTest : EachBackend {
  std::string const path_ = folder_.file("file");
};

TEST(FaultPlanText, what_cannot_be_read_is_invalid_and_named)
{
  for (char const* const text : {"enospc",
                                 "write:",
                                 "write:what",
                                 "sync:eio",
                                 "write:eio@nth",
                                 "write:eio@nth=x",
                                 "write:eio@nth=-1",
                                 "write:eio@n=1",
                                 "any:slow",
                                 "any:reorder@window=1",
                                 "read:eio@every=0",
                                 "read:eio@nth=0",
                                 "read:eio@times=0",
                                 "read:eio@after=-1",
                                 "read:eio@p=1.5",
                                 "read:eio@p=-1",
                                 "read:eio@p=nan",
                                 "any:slow@ms=nan",
                                 "any:slow@ms=inf",
                                 "any:slow@ms=1e300",
                                 "read:eio;write:bad@nth=1"}) {
    auto const error = error_of([&] { FaultPlan const plan{text}; });
    EXPECT_EQ(error.status, DP_ERR_INVALID) << text;
    EXPECT_NE(error.message.find("fault plan"), std::string::npos) << error.message;
  }
}

TEST(FaultPlanText, spaces_and_empty_rules_are_allowed)
{ FaultPlan const plan{" write : enospc @ after = 10 , times = 2 ;; any:slow@ms=0.5; "}; }

TEST(FaultPlanText, conditions_count_only_matching_requests_and_hold_together)
{
  FaultPlan plan{"write:eio@after=2,every=3,times=2"};
  Descriptors file;
  IoPiece reading;
  reading.file = &file;
  IoPiece writing;
  writing.file = &file;
  writing.op   = IoOp::write;
  std::string fired;
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(plan.judge(reading).os_errno, 0);
    fired += plan.judge(writing).os_errno == EIO ? 'x' : '.';
  }
  EXPECT_EQ(fired, "....x..x....");
}

TEST(FaultPlanText, chance_is_seeded)
{
  auto const draw = [](std::string const& text) {
    FaultPlan plan{text};
    Descriptors file;
    IoPiece piece;
    piece.file = &file;
    std::string fired;
    for (int i = 0; i < 200; ++i) { fired += plan.judge(piece).os_errno != 0 ? 'x' : '.'; }
    return fired;
  };
  EXPECT_EQ(draw("any:eio@p=0.3,seed=1"), draw("any:eio@p=0.3,seed=1"));
  EXPECT_NE(draw("any:eio@p=0.3,seed=1"), draw("any:eio@p=0.3,seed=2"));
  auto const fired = draw("any:eio@p=0.3,seed=1");
  EXPECT_NEAR(static_cast<double>(std::count(fired.begin(), fired.end(), 'x')), 60.0, 30.0);
}

TEST_P(FaultsTest, bad_plan_is_refused_at_construction)
{
  EXPECT_EQ(error_of([&] { (void)faulty_engine("nonsense"); }).status, DP_ERR_INVALID);
  set_setting("io.faults", "any:what");
  EXPECT_EQ(error_of([&] { (void)engine(); }).status, DP_ERR_INVALID);
  set_setting("io.faults", nullptr);
}

TEST_P(FaultsTest, full_drive_is_an_out_of_space_error_with_path_offset_and_remedy)
{
  auto const file = faulty_engine("write:enospc@after=2")->open(path_, "w+");
  Memory const out{8192};
  out.fill_pattern(1);
  (void)write(*file, out, 0);
  (void)write(*file, out, 8192);
  auto const error = error_of([&] { (void)write(*file, out, 16384); });
  EXPECT_EQ(error.status, DP_ERR_NO_SPACE);
  EXPECT_EQ(error.os_errno, ENOSPC);
  EXPECT_EQ(error.path, path_);
  EXPECT_EQ(error.offset, 16384);
  EXPECT_NE(error.message.find("free space"), std::string::npos) << error.message;
  Memory const in{8192};
  EXPECT_EQ(read(*file, in, 8192), in.size());
  EXPECT_TRUE(in == out);
}

TEST_P(FaultsTest, quota_is_out_of_space_too)
{
  auto const file = faulty_engine("write:edquot")->open(path_, "w+");
  Memory const out{10};
  auto const error = error_of([&] { (void)write(*file, out, 0); });
  EXPECT_EQ(error.status, DP_ERR_NO_SPACE);
  EXPECT_EQ(error.os_errno, EDQUOT);
}

TEST_P(FaultsTest, drive_that_vanishes_fails_every_request_and_nothing_hangs)
{
  auto const owner = faulty_engine("any:eio@after=3");
  auto const file  = owner->open(path_, "w+");
  Memory const memory{16'000'000};
  memory.fill_pattern(2);
  std::atomic<int> released{0};
  auto const one = request(memory, 0);
  std::vector<Ref<Ticket>> tickets;
  for (int i = 0; i < 4; ++i) {
    tickets.push_back(file->write({&one, 1}, Owner{counting_owner(released)}));
    tickets.push_back(file->read({&one, 1}, Owner{counting_owner(released)}));
  }
  for (auto const& ticket : tickets) {
    auto const error = error_of([&] { (void)result(ticket); });
    EXPECT_EQ(error.status, DP_ERR_IO);
    EXPECT_EQ(error.os_errno, EIO);
    // Reported by every call, not once.
    EXPECT_EQ(ticket->state(), DP_ERR_IO);
  }
  EXPECT_EQ(released, 8);
  owner->close();
}

TEST_P(FaultsTest, one_bad_request_fails_its_batch_and_no_other)
{
  auto const file = faulty_engine("read:eio@nth=3")->open(path_, "w+");
  Memory const content{40'000};
  content.fill_pattern(3);
  (void)write(*file, content, 0);
  Memory const in{4000};
  dp_io_request const requests[]{{in.data(), 1000, 0},
                                 {in.data() + 1000, 1000, 1000},
                                 {in.data() + 2000, 1000, 2000},
                                 {in.data() + 3000, 1000, 3000}};
  EXPECT_EQ(error_of([&] { (void)result(file->read(requests, Owner{})); }).os_errno, EIO);
  EXPECT_EQ(result(file->read(requests, Owner{})), 4000U);
}

TEST_P(FaultsTest, interrupted_short_and_refused_attempts_are_repeated)
{
  for (char const* const plan : {"any:eintr@p=0.5,seed=1",
                                 "any:eagain@p=0.5,seed=2",
                                 "any:short@p=0.7,seed=3",
                                 "any:short@every=1",
                                 "any:einval@nth=1"}) {
    SCOPED_TRACE(plan);
    auto const file = faulty_engine(plan)->open(path_, "w+");
    Memory const out{3'000'001};
    Memory const in{3'000'001};
    out.fill_pattern(4);
    in.fill(std::byte{0});
    EXPECT_EQ(write(*file, out, 4096), out.size());
    EXPECT_EQ(read(*file, in, 4096), in.size());
    EXPECT_TRUE(in == out);
  }
}

TEST_P(FaultsTest, interruption_without_end_is_an_error_and_no_loop)
{
  auto const file = faulty_engine("read:eintr")->open(path_, "w+");
  Memory const memory{4096};
  (void)write(*file, memory, 0);
  EXPECT_EQ(error_of([&] { (void)read(*file, memory, 0); }).os_errno, EINTR);
}

TEST_P(FaultsTest, reordered_and_slow_requests_end_all_the_same)
{
  auto const file =
    faulty_engine("any:reorder@window=8;any:slow@ms=2,p=0.2,seed=5")->open(path_, "w+");
  Memory const out{50U << 20U};
  Memory const in{50U << 20U};
  out.fill_pattern(5);
  EXPECT_EQ(write(*file, out, 0), out.size());
  EXPECT_EQ(read(*file, in, 0), in.size());
  EXPECT_TRUE(in == out);
}

TEST_P(FaultsTest, plan_can_aim_at_one_path_and_wait_for_bytes)
{
  auto const owner  = faulty_engine("write:enospc@path=second,after_bytes=1MiB");
  auto const first  = owner->open(folder_.file("first"), "w+");
  auto const second = owner->open(folder_.file("second"), "w+");
  Memory const out{1U << 20U};
  out.fill_pattern(6);
  for (int i = 0; i < 3; ++i) { EXPECT_EQ(write(*first, out, 0), out.size()); }
  EXPECT_EQ(write(*second, out, 0), out.size());
  EXPECT_EQ(error_of([&] { (void)write(*second, out, 0); }).status, DP_ERR_NO_SPACE);
}

/// Shortens io.close_timeout for a while.
struct ShortClose {
  ShortClose() { set_setting("io.close_timeout", "0.3"); }
  ~ShortClose() { set_setting("io.close_timeout", nullptr); }
};

TEST_P(FaultsTest, lost_completion_leaves_the_ticket_pending_and_keeps_the_memory)
{
  ShortClose const patience;
  auto const owner = faulty_engine("write:lost@nth=2");
  auto const file  = owner->open(path_, "w+");
  auto* const kept = new Memory{4096};
  kept->fill_pattern(7);
  std::atomic<int> released{0};
  auto const one = request(*kept, 0);
  EXPECT_EQ(result(file->write({&one, 1}, Owner{})), 4096U);
  auto const lost = file->write({&one, 1}, Owner{counting_owner(released)});
  EXPECT_FALSE(lost->wait(50'000'000));
  // Others go on.
  Memory const in{4096};
  EXPECT_EQ(read(*file, in, 0), 4096U);
  auto const start = std::chrono::steady_clock::now();
  for (auto const& body : {std::function<void()>{[&] { file->sync(); }},
                           std::function<void()>{[&] { file->close(); }},
                           std::function<void()>{[&] { owner->close(); }}}) {
    auto const error = error_of(body);
    EXPECT_EQ(error.status, DP_ERR_IO);
    EXPECT_EQ(error.os_errno, ETIMEDOUT);
    EXPECT_NE(error.message.find("io.close_timeout"), std::string::npos) << error.message;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds{30});
  EXPECT_EQ(lost->state(), DP_PENDING);
  EXPECT_EQ(released, 0);
  EXPECT_NE(owner->describe().find("\"lost_completions\":1"), std::string::npos);
  delete kept;
}

TEST_P(FaultsTest, lost_completion_bounds_the_close_of_its_file_while_others_make_progress)
{
  ShortClose const patience;
  auto const owner = faulty_engine("write:lost@nth=1");
  auto const file  = owner->open(path_, "w+");
  auto const other = owner->open(folder_.file("other"), "w+");
  auto* const kept = new Memory{4096};
  kept->fill_pattern(7);
  auto const one  = request(*kept, 0);
  auto const lost = file->write({&one, 1}, Owner{});
  std::atomic<bool> done{false};
  std::thread busy{[&] {
    Memory const out{4096};
    out.fill_pattern(8);
    auto const end = std::chrono::steady_clock::now() + std::chrono::seconds{30};
    while (!done.load() && std::chrono::steady_clock::now() < end) { (void)write(*other, out, 0); }
    EXPECT_TRUE(done.load()) << "the close went on as long as the other file was written";
  }};
  EXPECT_EQ(error_of([&] { file->close(); }).os_errno, ETIMEDOUT);
  done.store(true);
  busy.join();
  EXPECT_EQ(lost->state(), DP_PENDING);
  delete kept;
}

TEST_P(FaultsTest, direct_io_that_is_required_never_goes_through_the_page_cache)
{
  EngineOptions options;
  options.faults   = "write:einval@nth=1";
  options.direct   = 1;
  auto const owner = engine(std::move(options));
  Ref<File> file;
  auto const refused = error_of([&] { file = owner->open(path_, "w+"); });
  if (refused.status == DP_ERR_UNSUPPORTED) { GTEST_SKIP() << refused.message; }
  Memory const out{1U << 20U};
  out.fill_pattern(3);
  auto const error = error_of([&] { (void)write(*file, out, 0); });
  EXPECT_EQ(error.status, DP_ERR_IO);
  EXPECT_EQ(error.os_errno, EINVAL);
  EXPECT_NE(error.message.find("io.direct=auto"), std::string::npos) << error.message;
  // One refusal is no reason to give direct I/O up.
  EXPECT_EQ(write(*file, out, 0), out.size());
}

TEST_P(FaultsTest, extent_of_a_lost_completion_is_never_used_again)
{
  ShortClose const patience;
  auto const owner = faulty_engine("write:lost@nth=1");
  auto const space = make_ref<Volume>(
    std::vector{folder_.path()}, VolumeOptions{.capacity = 8192, .reserve_bytes = 1}, owner);
  auto extent = space->allocate(4096);
  Memory const out{4096};
  auto const one    = request(out, 0);
  auto const ticket = extent->write({&one, 1}, Owner{});
  extent->free();
  auto const other = space->allocate(4096);
  EXPECT_EQ(error_of([&] { (void)space->allocate(4096); }).status, DP_ERR_NO_SPACE);
  EXPECT_EQ(error_of([&] { space->close(); }).os_errno, ETIMEDOUT);
}

TEST_P(FaultsTest, kill_ends_the_process_in_the_middle)
{
  SKIP_WHERE_CHILDREN_HAVE_NO_THREADS();
  auto const code = run_in_child([&] {
    auto const file = faulty_engine("write:kill@nth=2")->open(path_, "w+");
    Memory const out{100};
    (void)write(*file, out, 0);
    (void)write(*file, out, 100);
    return 0;
  });
  EXPECT_EQ(code, -SIGKILL);
  EXPECT_EQ(std::filesystem::file_size(path_), 100U);
}

FOR_EACH_BACKEND(FaultsTest);

}  // namespace
}  // namespace datapath::io_testing
