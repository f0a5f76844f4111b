// SPDX-License-Identifier: Apache-2.0
/// @file
/// The yardstick of io_bench: io_uring by bare system calls, a ring for each thread, nothing in
/// between. It is what the kernel and the drive give to a program that does nothing else.
#pragma once

#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>

namespace bench {

[[noreturn]] inline void throw_errno(char const* what)
{ throw std::system_error{errno, std::generic_category(), what}; }

/// A ring with depth entries; one thread's.
class RawRing {
 public:
  explicit RawRing(unsigned depth)
  {
    io_uring_params parameters{};
    fd_ = static_cast<int>(::syscall(__NR_io_uring_setup, depth, &parameters));
    if (fd_ < 0) { throw_errno("io_uring_setup"); }
    sq_bytes_   = parameters.sq_off.array + parameters.sq_entries * sizeof(std::uint32_t);
    cq_bytes_   = parameters.cq_off.cqes + parameters.cq_entries * sizeof(io_uring_cqe);
    sqes_bytes_ = parameters.sq_entries * sizeof(io_uring_sqe);
    sq_         = map(sq_bytes_, IORING_OFF_SQ_RING);
    cq_         = map(cq_bytes_, IORING_OFF_CQ_RING);
    sqes_       = reinterpret_cast<io_uring_sqe*>(map(sqes_bytes_, IORING_OFF_SQES));
    sq_tail_    = word(sq_, parameters.sq_off.tail);
    sq_mask_    = *word(sq_, parameters.sq_off.ring_mask);
    sq_array_   = word(sq_, parameters.sq_off.array);
    cq_head_    = word(cq_, parameters.cq_off.head);
    cq_tail_    = word(cq_, parameters.cq_off.tail);
    cq_mask_    = *word(cq_, parameters.cq_off.ring_mask);
    cqes_       = reinterpret_cast<io_uring_cqe*>(cq_ + parameters.cq_off.cqes);
  }
  ~RawRing()
  {
    ::munmap(sq_, sq_bytes_);
    ::munmap(cq_, cq_bytes_);
    ::munmap(sqes_, sqes_bytes_);
    ::close(fd_);
  }
  RawRing(RawRing const&)            = delete;
  RawRing& operator=(RawRing const&) = delete;

  void prepare(
    bool write, int file, void* memory, unsigned nbytes, std::uint64_t offset, std::uint64_t data)
  {
    auto const tail = *sq_tail_;
    auto& entry     = sqes_[tail & sq_mask_];
    std::memset(&entry, 0, sizeof(entry));
    entry.opcode               = write ? IORING_OP_WRITE : IORING_OP_READ;
    entry.fd                   = file;
    entry.addr                 = reinterpret_cast<std::uint64_t>(memory);
    entry.len                  = nbytes;
    entry.off                  = offset;
    entry.user_data            = data;
    sq_array_[tail & sq_mask_] = tail & sq_mask_;
    std::atomic_ref{*sq_tail_}.store(tail + 1, std::memory_order_release);
    ++prepared_;
  }

  /// Submits what was prepared and waits for at least one end.
  void enter()
  {
    auto const taken =
      ::syscall(__NR_io_uring_enter, fd_, prepared_, 1U, IORING_ENTER_GETEVENTS, nullptr, 0);
    if (taken < 0 && errno != EINTR) { throw_errno("io_uring_enter"); }
    if (taken > 0) { prepared_ -= static_cast<unsigned>(taken); }
  }

  /// Calls `ended(user_data)` for each; throws if one moved other than `nbytes`.
  template <class Ended>
  void reap(unsigned nbytes, Ended ended)
  {
    auto head       = *cq_head_;
    auto const tail = std::atomic_ref{*cq_tail_}.load(std::memory_order_acquire);
    for (; head != tail; ++head) {
      auto const& completion = cqes_[head & cq_mask_];
      if (completion.res != static_cast<int>(nbytes)) {
        throw std::runtime_error{"a raw request ended with " + std::to_string(completion.res)};
      }
      ended(completion.user_data);
    }
    std::atomic_ref{*cq_head_}.store(head, std::memory_order_release);
  }

 private:
  std::byte* map(std::size_t nbytes, std::uint64_t what)
  {
    auto* const memory = ::mmap(nullptr,
                                nbytes,
                                PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_POPULATE,
                                fd_,
                                static_cast<off_t>(what));
    if (memory == MAP_FAILED) { throw_errno("mmap of a ring"); }
    return static_cast<std::byte*>(memory);
  }
  static std::uint32_t* word(std::byte* base, std::uint32_t offset)
  { return reinterpret_cast<std::uint32_t*>(base + offset); }

  int fd_{-1};
  unsigned prepared_{0};
  std::size_t sq_bytes_{0};
  std::size_t cq_bytes_{0};
  std::size_t sqes_bytes_{0};
  std::byte* sq_{nullptr};
  std::byte* cq_{nullptr};
  io_uring_sqe* sqes_{nullptr};
  std::uint32_t* sq_tail_{nullptr};
  std::uint32_t* sq_array_{nullptr};
  std::uint32_t* cq_head_{nullptr};
  std::uint32_t* cq_tail_{nullptr};
  io_uring_cqe* cqes_{nullptr};
  std::uint32_t sq_mask_{0};
  std::uint32_t cq_mask_{0};
};

}  // namespace bench
