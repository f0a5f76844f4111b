// SPDX-License-Identifier: Apache-2.0
#include "io/cut.hpp"

#include "support/error.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace datapath {

namespace {

/// Below this an unaligned request is served faster by one buffered call than by three.
constexpr std::uint64_t least_direct_middle = 64U << 10U;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit)
{ return (value + unit - 1) / unit * unit; }
std::uint64_t round_down(std::uint64_t value, std::uint64_t unit)
{ return value / unit * unit; }

std::uint32_t offset_alignment(Descriptors const& file, IoOp op) noexcept
{ return op == IoOp::read ? file.read_alignment : file.write_alignment; }

/// Direct pieces of one chunk each; buffered ones end at multiples of it, so that they share no
/// page.
void cut_range(std::vector<IoPiece>& pieces, IoPiece piece, std::uint64_t end, std::uint64_t chunk)
{
  auto const start   = piece.offset;
  auto* const memory = piece.pointer;
  while (piece.offset < end) {
    auto const from = piece.direct ? piece.offset : round_down(piece.offset, chunk);
    auto const stop = std::min(end, from + chunk);
    piece.nbytes    = stop - piece.offset;
    piece.pointer   = memory + (piece.offset - start);
    pieces.push_back(piece);
    piece.offset = stop;
  }
}

}  // namespace

void check_request(dp_io_request const& request)
{
  if (request.nbytes == 0) { return; }
  expects(request.pointer != nullptr, "the request's memory is NULL");
  constexpr auto last = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (request.offset > last || request.nbytes > last - request.offset) {
    fail(DP_ERR_INVALID,
         "a request of " + std::to_string(request.nbytes) + " bytes at offset " +
           std::to_string(request.offset) + " passes the largest offset of a file, 2^63 - 1");
  }
}

void cut(std::vector<IoPiece>& pieces, dp_io_request const& request, CutRules const& rules)
{
  if (request.nbytes == 0) { return; }
  auto& file = *rules.file;
  IoPiece piece;
  piece.op            = rules.op;
  piece.backend       = rules.backend;
  piece.file          = &file;
  piece.offset        = request.offset;
  piece.device_memory = rules.device_memory;
  piece.pointer       = static_cast<std::byte*>(request.pointer);
  auto const end      = request.offset + request.nbytes;
  auto const unit     = offset_alignment(file, rules.op);
  auto const chunk    = round_up(rules.chunk_bytes, std::max<std::uint64_t>(unit, 4096));
  if (rules.device_memory || !file.use_direct()) { return cut_range(pieces, piece, end, chunk); }

  auto const middle      = round_up(request.offset, unit);
  auto const direct_end  = rules.op == IoOp::read ? std::min(end, rules.direct_end) : end;
  auto const middle_end  = round_down(direct_end, unit);
  auto* const middle_ptr = piece.pointer + (middle - request.offset);
  bool const all_direct  = middle == request.offset && middle_end == end;
  bool const worth_it =
    middle_end > middle && (all_direct || middle_end - middle >= least_direct_middle);
  if (!worth_it || reinterpret_cast<std::uintptr_t>(middle_ptr) % file.memory_alignment != 0) {
    return cut_range(pieces, piece, end, chunk);
  }
  cut_range(pieces, piece, middle, chunk);
  piece.direct  = true;
  piece.offset  = middle;
  piece.pointer = middle_ptr;
  cut_range(pieces, piece, middle_end, chunk);
  piece.direct  = false;
  piece.offset  = middle_end;
  piece.pointer = middle_ptr + (middle_end - middle);
  cut_range(pieces, piece, end, chunk);
}

std::uint32_t direct_unit(IoPiece const& piece) noexcept
{ return offset_alignment(*piece.file, piece.op); }

bool fits_direct(IoPiece const& piece) noexcept
{
  auto const unit = direct_unit(piece);
  return piece.offset % unit == 0 && piece.nbytes % unit == 0 &&
         reinterpret_cast<std::uintptr_t>(piece.pointer) % piece.file->memory_alignment == 0;
}

}  // namespace datapath
