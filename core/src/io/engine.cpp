// SPDX-License-Identifier: Apache-2.0
#include "io/engine.hpp"

#include "io/backend_choice.hpp"
#include "io/fault_plan.hpp"
#include "io/faulty_backend.hpp"
#include "io/file.hpp"
#include "support/error.hpp"
#include "support/json.hpp"
#include "support/log.hpp"
#include "support/per_process.hpp"
#include "support/settings.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <thread>

namespace datapath {

namespace {

DirectMode resolve_direct(std::int32_t option)
{
  expects(option >= -1 && option <= 1, "the option 'direct' is none of -1, 0, 1");
  if (option > 0) { return DirectMode::required; }
  if (option < 0) { return DirectMode::never; }
  auto const value = setting("io.direct").value;
  if (value == "required") { return DirectMode::required; }
  return value == "never" ? DirectMode::never : DirectMode::automatic;
}

std::uint32_t resolve_count(std::uint32_t option, char const* name, std::uint32_t largest)
{
  if (option == 0) { return static_cast<std::uint32_t>(setting_integer(name)); }
  if (option > largest) {
    fail(DP_ERR_INVALID,
         std::string{name} + " is " + std::to_string(option) + ", more than " +
           std::to_string(largest));
  }
  return option;
}

std::string_view direct_name(DirectMode mode)
{
  switch (mode) {
    case DirectMode::required:
      return "required";
    case DirectMode::never:
      return "never";
    default:
      return "auto";
  }
}

}  // namespace

Engine::Engine(EngineOptions const& options)
  : requested_{options.backend.empty() ? setting("io.backend").value : options.backend},
    direct_{resolve_direct(options.direct)},
    chunk_bytes_{setting_bytes("io.chunk_bytes")},
    close_timeout_{setting_nanoseconds("io.close_timeout")}
{
  constexpr std::uint32_t largest_depth   = 32768;
  constexpr std::uint32_t largest_threads = 256;
  backend_options_.depth                  = resolve_count(options.depth, "io.depth", largest_depth);
  backend_options_.threads = resolve_count(options.threads, "io.threads", largest_threads);
  backend_options_.max_inflight_bytes = options.max_inflight_bytes != 0
                                          ? options.max_inflight_bytes
                                          : setting_bytes("io.max_inflight_bytes");
  auto const faults = options.faults.empty() ? setting("io.faults").value : options.faults;
  if (!faults.empty()) {
    faults_ = std::make_shared<FaultPlan>(faults);
    log_once(LogLevel::warning,
             "io.engine",
             "requests fail on purpose, by the fault plan '" + faults + "'");
  }
  backend_ = make_backend(reasons_);
}

Engine::~Engine()
{
  for_each_backend([](std::unique_ptr<Backend>& backend) {
    // A thread that is stuck in a call still uses it: then it is leaked.
    if (!backend->stop()) { (void)backend.release(); }
  });
}

template <class Body>
void Engine::for_each_backend(Body body)
{
  std::lock_guard const lock{siblings_mutex_};
  body(backend_);
  for (auto& sibling : siblings_) { body(sibling); }
}

void Engine::last_reference_gone() const noexcept
{
  // In a forked child the threads are not there to be joined, and locks may be held for ever.
  if (fork_.inherited()) { return; }
  auto const own = [](std::unique_ptr<Backend> const& backend) { return backend->on_own_thread(); };
  if (own(backend_) || std::any_of(siblings_.begin(), siblings_.end(), own)) {
    // An I/O thread dropped the last reference at the end of a batch; it cannot join itself.
    try {
      std::thread{[this] { delete this; }}.detach();
    } catch (...) {
      // No thread to be had: the engine is leaked.
    }
    return;
  }
  delete this;
}

std::unique_ptr<Backend> Engine::make_backend(std::vector<std::string>& reasons) const
{
  auto backend = choose_backend(requested_, backend_options_, reasons);
  if (faults_) { backend = std::make_unique<FaultyBackend>(std::move(backend), faults_); }
  return backend;
}

Backend& Engine::backend_for_drive(std::size_t drive)
{
  if (drive == 0) { return *backend_; }
  std::lock_guard const lock{siblings_mutex_};
  // The first backend's reasons are those that describe() tells, without a lock.
  std::vector<std::string> same_reasons;
  while (siblings_.size() < drive) { siblings_.push_back(make_backend(same_reasons)); }
  return *siblings_[drive - 1];
}

Ref<File> Engine::open(std::string const& path, std::string_view mode)
{
  check_usable();
  return Ref<File>::adopt(new File(Ref<Engine>::share(this), path, mode));
}

void Engine::close()
{
  fork_.check("the engine");
  if (inflight_.shut(close_timeout_, [this] { return progress(); })) {
    for_each_backend([](auto& backend) { (void)backend->stop(); });
    return;
  }
  fail_system(
    ETIMEDOUT,
    "closing the engine: " + std::to_string(inflight_.count()) +
      " calls are in flight and nothing has ended for io.close_timeout",
    {},
    -1,
    "their tickets stay pending and their memory is kept for good, since a drive may still "
    "write to it; end the process to get it back");
}

void Engine::check_usable() const
{
  fork_.check("the engine");
  if (inflight_.is_shut()) { fail(DP_ERR_CLOSED, "the engine is closed"); }
}

Inflight::Token Engine::enter()
{
  Inflight::Token token{0};
  if (!inflight_.enter(token)) { fail(DP_ERR_CLOSED, "the engine is closed"); }
  return token;
}

std::uint64_t Engine::progress() const
{
  std::lock_guard const lock{siblings_mutex_};
  auto sum = backend_->attempts_ended();
  for (auto const& sibling : siblings_) { sum += sibling->attempts_ended(); }
  return sum;
}

std::string Engine::describe() const
{
  fork_.check("the engine");
  JsonWriter json;
  json.object()
    .field("backend", backend_->name())
    .field("requested", requested_)
    .field("depth", backend_options_.depth)
    .field("threads", backend_options_.threads)
    .field("direct", direct_name(direct_))
    .field("chunk_bytes", chunk_bytes_)
    .field("max_inflight_bytes", backend_options_.max_inflight_bytes)
    .field("closed", inflight_.is_shut())
    .field("calls_in_flight", inflight_.count())
    .field("attempts_ended", progress())
    .field("faults", faults_ ? std::string_view{faults_->text()} : std::string_view{});
  json.array("fallback_reasons");
  for (auto const& reason : reasons_) { json.raw({}, json_quote(reason)); }
  json.end().object("detail");
  backend_->describe(json);
  return json.end().end().take();
}

Ref<Engine> Engine::shared()
{
  struct Slot {
    std::mutex mutex;
    Ref<Engine> engine;
  };
  static constinit PerProcess<Slot> slot;
  auto& [mutex, engine] = slot.get();
  std::lock_guard const lock{mutex};
  if (!engine || engine->inflight_.is_shut()) { engine = make_ref<Engine>(EngineOptions{}); }
  return engine;
}

}  // namespace datapath
