// SPDX-License-Identifier: Apache-2.0
#include "io/file.hpp"

#include "io/cut.hpp"
#include "io/device_pointer.hpp"
#include "io/io_thread.hpp"
#include "support/error.hpp"

#include <unistd.h>

#include <cerrno>
#include <limits>

namespace datapath {

namespace {

/// Brackets a call that uses a descriptor itself.
class CallGuard {
 public:
  explicit CallGuard(Inflight& calls) : calls_{calls}
  {
    if (!calls_.enter(token_)) { fail(DP_ERR_CLOSED, "the file is closed"); }
  }
  ~CallGuard() { calls_.leave(token_); }
  CallGuard(CallGuard const&)            = delete;
  CallGuard& operator=(CallGuard const&) = delete;

 private:
  Inflight& calls_;
  Inflight::Token token_{0};
};

}  // namespace

File::File(Ref<Engine> engine, std::string const& path, std::string_view mode)
  : engine_{std::move(engine)},
    path_{path},
    mode_{parse_open_mode(mode)},
    descriptors_{open_descriptors(path, mode_, engine_->direct_mode())}
{ direct_reason_ = descriptors_->direct_reason; }

File::~File()
{
  if (descriptors_ != nullptr && !engine_->inherited()) {
    engine_->backend().forget(*descriptors_);
  }
}

void File::last_reference_gone() const noexcept
{
  if (!engine_->inherited()) { delete this; }
}

bool File::takes_device_pointers() const noexcept
{ return engine_->backend().takes_device_pointers(); }

void File::check_usable() const
{
  engine_->check_usable();
  if (inflight_.is_shut()) { fail(DP_ERR_CLOSED, "the file is closed: '" + path_ + "'"); }
}

Ref<Ticket> File::read(std::span<dp_io_request const> requests, Owner owner)
{
  if (!mode_.readable) {
    fail(DP_ERR_INVALID,
         "'" + path_ + "' is open with mode '" + mode_.text + "' and cannot be read");
  }
  return submit(IoOp::read, requests, std::move(owner));
}

Ref<Ticket> File::write(std::span<dp_io_request const> requests, Owner owner)
{
  if (!mode_.writable) {
    fail(DP_ERR_INVALID,
         "'" + path_ + "' is open with mode '" + mode_.text + "' and cannot be written");
  }
  return submit(IoOp::write, requests, std::move(owner));
}

Ref<Ticket> File::submit(IoOp op, std::span<dp_io_request const> requests, Owner owner)
{
  check_usable();
  for (auto const& request : requests) { check_request(request); }
  auto batch              = std::make_unique<IoBatch>(op, false);
  auto const engine_token = engine_->enter();
  Inflight::Token token{0};
  if (!inflight_.enter(token)) {
    engine_->leave(engine_token);
    fail(DP_ERR_CLOSED, "the file is closed: '" + path_ + "'");
  }
  // From here on the file stays open; what throws must leave again.
  try {
    CutRules rules{op, engine_->chunk_bytes(), 0, &engine_->backend(), descriptors_.get()};
    if (op == IoOp::read && descriptors_->use_direct()) {
      rules.direct_end = size_of(*descriptors_);
    }
    batch->pieces().reserve(requests.size());
    for (auto const& request : requests) {
      rules.device_memory = takes_device_pointers() && is_device_pointer(request.pointer);
      cut(batch->pieces(), request, rules);
    }
  } catch (...) {
    inflight_.leave(token);
    engine_->leave(engine_token);
    throw;
  }
  IoEntry entry{engine_, engine_token, Ref<IoDoor>::share(this), token};
  return IoBatch::start(std::move(batch), std::move(owner), std::move(entry), nullptr);
}

void File::left(Inflight::Token token) noexcept
{ inflight_.leave(token); }

std::uint64_t File::size() const
{
  check_usable();
  CallGuard const call{calls_};
  return size_of(*descriptors_);
}

void File::flush(char const* what)
{
  if (!inflight_.flush(engine_->close_timeout(), [this] { return attempts_ended(); })) {
    fail_system(ETIMEDOUT,
                std::string{what} +
                  ": earlier requests are in flight and nothing has ended for "
                  "io.close_timeout",
                path_);
  }
}

void File::truncate(std::uint64_t nbytes)
{
  check_usable();
  if (!mode_.writable) {
    fail(DP_ERR_INVALID,
         "'" + path_ + "' is open with mode '" + mode_.text + "' and cannot be truncated");
  }
  expects(nbytes <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()),
          "the size passes the largest offset of a file, 2^63 - 1");
  CallGuard const call{calls_};
  flush("truncating");
  FileSizeSignalGuard const no_signal;
  int result = 0;
  do {
    result = ::ftruncate(descriptors_->buffered, static_cast<off_t>(nbytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) { fail_system(errno, "truncating", path_, static_cast<std::int64_t>(nbytes)); }
}

void File::sync()
{
  check_usable();
  CallGuard const call{calls_};
  flush("syncing");
  int result = 0;
  do {
    result = ::fdatasync(descriptors_->buffered);
  } while (result != 0 && errno == EINTR);
  if (result != 0) { fail_system(errno, "syncing", path_); }
}

void File::close()
{
  if (engine_->inherited()) { engine_->check_usable(); }
  auto const timeout  = engine_->close_timeout();
  auto const progress = [this] { return attempts_ended(); };
  if (!inflight_.shut(timeout, progress) || !calls_.shut(timeout, progress)) {
    fail_system(ETIMEDOUT,
                "closing: " + std::to_string(inflight_.count()) +
                  " calls are in flight and nothing has ended for io.close_timeout",
                path_,
                -1,
                "their tickets stay pending and the file stays open");
  }
  std::unique_ptr<Descriptors> closing;
  {
    std::lock_guard const lock{closing_};
    closing.swap(descriptors_);
  }
  if (closing != nullptr) { engine_->backend().forget(*closing); }
}

}  // namespace datapath
