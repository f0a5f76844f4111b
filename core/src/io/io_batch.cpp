// SPDX-License-Identifier: Apache-2.0
#include "io/io_batch.hpp"

#include "io/backend.hpp"
#include "io/cut.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

namespace datapath {

namespace {

/// Attempts in a row that may move nothing (EINTR, EAGAIN) before it counts as an error.
constexpr std::uint16_t stall_limit = 10000;
/// After this many EAGAIN the thread sleeps a little before the next attempt.
constexpr std::uint16_t stall_patience = 16;

std::string_view remedy(int os_errno)
{
  switch (os_errno) {
    case ENOSPC:
      return "the drive is full: free space on it or use another directory";
    case EDQUOT:
      return "the quota is used up: raise it, free space or use another directory";
    case EFBIG:
      return "the file would pass the size limit of the process (ulimit -f) or of the file system";
    case EIO:
      return "the drive or its connection failed: see the kernel's log";
    case EFAULT:
      return "the memory is not mapped, or belongs to a device (only the cufile backend takes "
             "that)";
    default:
      return {};
  }
}

std::vector<std::pair<Backend*, IoList>> lists_by_backend(std::vector<IoPiece>& pieces)
{
  std::vector<std::pair<Backend*, IoList>> lists;
  for (auto& piece : pieces) {
    auto found = std::find_if(
      lists.begin(), lists.end(), [&](auto const& list) { return list.first == piece.backend; });
    if (found == lists.end()) { found = lists.insert(lists.end(), {piece.backend, IoList{}}); }
    found->second.push_back(piece);
  }
  return lists;
}

void submit_one(IoPiece& piece)
{
  IoList list;
  list.push_back(piece);
  piece.backend->submit(list);
}

}  // namespace

Ref<Ticket> IoBatch::start(std::unique_ptr<IoBatch> batch,
                           Owner owner,
                           IoEntry entry,
                           Ref<IoSubject> subject)
{
  batch->owner_   = std::move(owner);
  batch->entry_   = std::move(entry);
  batch->subject_ = std::move(subject);
  auto ticket     = batch->ticket_;
  if (batch->pieces_.empty()) {
    batch.release()->finish();
    return ticket;
  }

  auto& pieces = batch->pieces_;
  batch->left_.store(pieces.size(), std::memory_order_relaxed);
  for (auto& piece : pieces) { piece.batch = batch.get(); }
  auto* const first = pieces.front().backend;
  bool const alone  = std::all_of(
    pieces.begin(), pieces.end(), [first](IoPiece const& piece) { return piece.backend == first; });
  if (alone) {
    IoList list;
    for (auto& piece : pieces) { list.push_back(piece); }
    // From here on the I/O threads own the batch; it may be gone before submit returns.
    (void)batch.release();
    first->submit(list);
  } else {
    auto lists = lists_by_backend(pieces);
    (void)batch.release();
    for (auto& [backend, list] : lists) { backend->submit(list); }
  }
  return ticket;
}

void attempt_ended(IoPiece& piece, std::int64_t result) noexcept
{
  auto& batch         = *piece.batch;
  piece.attempt_limit = 0;
  batch.entry_.door->attempt_ended();
  if (result > 0) {
    batch.advance(piece, static_cast<std::uint64_t>(result));
  } else if (result == -EINTR || result == -EAGAIN) {
    batch.stalled(piece, static_cast<int>(-result));
  } else if (result < 0) {
    if (result == -EINVAL && piece.direct && !piece.file->direct_required) {
      // The alignment was as asked for: this file system does not really serve direct I/O here.
      piece.file->refuse_direct();
      piece.direct = false;
      submit_one(piece);
    } else {
      batch.failed(piece, static_cast<int>(-result));
    }
  } else if (batch.op_ == IoOp::write) {
    batch.stalled(piece, EIO);
  } else if (batch.whole_) {
    batch.failed(piece,
                 ErrorInfo{DP_ERR_IO,
                           "reading: '" + piece.file->path + "' ends at byte " +
                             std::to_string(piece.offset) + ", " + std::to_string(piece.nbytes) +
                             " bytes before the end of what was written: somebody truncated it",
                           piece.file->path,
                           static_cast<std::int64_t>(piece.offset),
                           EIO,
                           0});
  } else {
    batch.piece_ended();
  }
}

void IoBatch::advance(IoPiece& piece, std::uint64_t nbytes) noexcept
{
  moved_.fetch_add(nbytes, std::memory_order_relaxed);
  if (nbytes >= piece.nbytes) { return piece_ended(); }
  piece.pointer += nbytes;
  piece.offset += nbytes;
  piece.nbytes -= nbytes;
  piece.stalls = 0;
  piece.direct = piece.direct && fits_direct(piece);
  submit_one(piece);
}

void IoBatch::stalled(IoPiece& piece, int os_errno) noexcept
{
  if (++piece.stalls >= stall_limit) { return failed(piece, os_errno); }
  if (os_errno != EINTR && piece.stalls > stall_patience) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  submit_one(piece);
}

void IoBatch::failed(IoPiece const& piece, int os_errno) noexcept
{
  failed(piece,
         system_error(os_errno,
                      op_ == IoOp::read ? "reading" : "writing",
                      piece.file->path,
                      static_cast<std::int64_t>(piece.offset),
                      os_errno == EINVAL && piece.direct
                        ? "the file system refuses an aligned direct request, and direct I/O is "
                          "required: use another file system or the setting io.direct=auto"
                        : remedy(os_errno)));
}

void IoBatch::failed(IoPiece const&, ErrorInfo error) noexcept
{
  if (!has_failed_.exchange(true, std::memory_order_relaxed)) { error_ = std::move(error); }
  piece_ended();
}

void IoBatch::piece_ended() noexcept
{
  if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) { finish(); }
}

void IoBatch::finish() noexcept
{
  auto const moved = moved_.load(std::memory_order_relaxed);
  // Whoever sees the ticket's end may rely on it: the memory is given back, a freed extent's bytes
  // too.
  owner_.release();
  if (subject_) {
    subject_->settled(op_, moved);
    subject_ = nullptr;
  }
  if (has_failed_.load(std::memory_order_relaxed)) {
    ticket_->fail(std::move(error_));
  } else {
    ticket_->complete(moved);
  }
  // Whoever sees a closed file or engine may rely on it: every ticket has ended.
  entry_.door->left(entry_.door_token);
  entry_.engine->leave(entry_.engine_token);
  delete this;
}

}  // namespace datapath
