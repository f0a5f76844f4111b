// SPDX-License-Identifier: Apache-2.0
/// @file
/// Pages: rounding to them, and faulting them in ahead of use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace datapath {

/// The system's page, 4 KiB on x86-64.
[[nodiscard]] std::uintptr_t page_bytes() noexcept;
[[nodiscard]] std::uintptr_t page_floor(std::uintptr_t address) noexcept;
[[nodiscard]] std::uintptr_t page_ceil(std::uintptr_t address) noexcept;

/// Allocations start and end at multiples of this.
inline constexpr std::uint64_t allocation_grain = 4096;
/// A transparent huge page of x86-64 and of most aarch64 kernels.
inline constexpr std::uint64_t huge_page_bytes = std::uint64_t{2} << 20U;

/// Rounds up to a multiple of a power of two.
[[nodiscard]] constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) noexcept
{ return (value + unit - 1) & ~(unit - 1); }

/// Faults whole pages in without changing their bytes; 0 or an errno. `writable` also breaks
/// sharing with the zero page and with a forked child. EFAULT or EINVAL tell memory that cannot be
/// had that way.
[[nodiscard]] int populate(void* pages, std::size_t nbytes, bool writable) noexcept;

/// "0x7f12...", for messages.
[[nodiscard]] std::string hex_address(std::uintptr_t address);

}  // namespace datapath
