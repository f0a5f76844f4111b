// SPDX-License-Identifier: Apache-2.0
/// @file
/// The table of registered ranges: spans with counts, shared by registrations that overlap.
#pragma once

#include "memory/registration.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace datapath {

/// One range of a registration that a device sees as one.
struct RegisteredPart {
  std::uint64_t start;
  std::uint64_t end;
  bool foreign;  ///< Another library's: not counted, not undone.
};

/// Ranges of one device, or of all CUDA devices, which share what they register.
class RegisteredSpans {
 public:
  using SharedOwner = std::shared_ptr<Owner>;

  /// Registers exactly what is missing of [start, end), each gap between the spans that are there
  /// by one call, and counts those up. All or nothing.
  [[nodiscard]] std::vector<RegisteredPart> cover(std::uint64_t start,
                                                  std::uint64_t end,
                                                  bool read_only,
                                                  Device& device,
                                                  SharedOwner const& owner);

  /// Counts down and unregisters what nobody uses. The owners that are free then are given to the
  /// caller, who releases them with no lock held.
  [[nodiscard]] std::vector<SharedOwner> uncover(std::vector<RegisteredPart> const& parts) noexcept;

  [[nodiscard]] RegistrationStats stats() const;

  /// The table that a device's registrations go into.
  [[nodiscard]] static std::shared_ptr<RegisteredSpans> of(Device const& device);
  /// All of this process.
  [[nodiscard]] static RegistrationStats total();

 private:
  struct Span {
    std::uint64_t end;
    std::uint64_t references;
    bool read_only;
    Ref<Device> device;  ///< Which registered it.
    SharedOwner owner;   ///< For whom.
  };
  struct Gap {
    std::uint64_t start;
    std::uint64_t end;
  };

  /// Counts the spans in the range up and lists what is between them.
  [[nodiscard]] std::vector<Gap> share_spans(std::uint64_t start,
                                             std::uint64_t end,
                                             bool read_only,
                                             std::vector<RegisteredPart>& parts);
  [[nodiscard]] std::vector<SharedOwner> uncover_locked(
    std::vector<RegisteredPart> const& parts) noexcept;

  mutable std::mutex mutex_;
  std::map<std::uint64_t, Span> spans_;  ///< By start.
  std::uint64_t registrations_{0};
};

}  // namespace datapath
