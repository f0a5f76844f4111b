// SPDX-License-Identifier: Apache-2.0
/// @file
/// A live allocation of a pool.
#pragma once

#include "memory/pool.hpp"

#include <string>
#include <utility>

namespace datapath {

class PoolBuffer final : public Buffer {
 public:
  struct Place {
    FreeRanges::Range range{0, 0};
    std::uint64_t nbytes{0};
    std::uint64_t device_address{0};
    bool pinned{false};
    std::string const* reason{nullptr};  ///< The pool's; lives as long as it.
  };

  PoolBuffer(Ref<Pool> pool, Place place) : pool_{std::move(pool)}, place_{std::move(place)} {}

  [[nodiscard]] void* data() const noexcept override;
  [[nodiscard]] std::uint64_t nbytes() const noexcept override { return place_.nbytes; }
  [[nodiscard]] std::uint64_t device_address() const noexcept override
  { return place_.device_address; }
  [[nodiscard]] Device* device() const noexcept override { return pool_->device(); }
  [[nodiscard]] bool is_pinned() const noexcept override { return place_.pinned; }
  [[nodiscard]] bool is_registered() const noexcept override { return false; }
  [[nodiscard]] std::string const& reason() const noexcept override { return *place_.reason; }
  void record_use(Device& device, dp_stream stream) override;

 protected:
  void last_reference_gone() const noexcept override;

 private:
  Ref<Pool> pool_;
  Place place_;
  mutable UseRecorder uses_;
};

}  // namespace datapath
