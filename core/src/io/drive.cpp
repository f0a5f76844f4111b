// SPDX-License-Identifier: Apache-2.0
#include "io/drive.hpp"

#include "support/error.hpp"

#include <utility>

namespace datapath {

Drive::Drive(std::string directory, bool keep, DirectMode direct, Backend& backend)
  : file_{std::move(directory), keep, direct}, backend_{&backend}
{}

std::uint64_t Drive::room(std::uint64_t grain) const
{
  auto const available = file_.available();
  return available <= reserve_bytes_ ? 0 : (available - reserve_bytes_) / grain * grain;
}

bool Drive::grow(std::uint64_t by)
{
  if (int const error = file_.grow(backed_ + by); error != 0) {
    grow_error_ = system_error(error,
                               "growing a volume's file by " + std::to_string(by) + " bytes",
                               file_.path(),
                               static_cast<std::int64_t>(backed_))
                    .message;
    return false;
  }
  grow_error_.clear();
  free_.add({backed_, by});
  backed_ += by;
  return true;
}

bool Drive::take_one(std::uint64_t nbytes, std::vector<FileRange>& out)
{
  auto const range = free_.take_fit(nbytes);
  if (range) { out.push_back(*range); }
  return range.has_value();
}

void Drive::take_many(std::uint64_t nbytes, std::vector<FileRange>& out)
{
  while (nbytes != 0) {
    auto const range = free_.take_largest(nbytes);
    if (!range) {
      fail(DP_ERR_INTERNAL, "a drive of a volume has fewer free bytes than it counted");
    }
    out.push_back(*range);
    nbytes -= range->nbytes;
  }
}

void Drive::close(bool requests_pending) noexcept
{
  if (!file_.is_open()) { return; }
  if (requests_pending) {
    file_.abandon();
  } else {
    backend_->forget(file_.descriptors());
    file_.close();
  }
  free_.clear();
  backed_ = 0;
}

}  // namespace datapath
