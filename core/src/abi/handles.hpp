// SPDX-License-Identifier: Apache-2.0
/// @file
/// Between the C ABI and the classes behind it: handles, options that grow, results that grow, strings.
#pragma once

#include "support/error.hpp"
#include "support/ref.hpp"

#include <datapath/datapath.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace datapath {

class Buffer;
class Device;
class Engine;
class Extent;
class File;
class Pool;
class Scheduler;
class Ticket;
class Volume;

/// The class behind a handle, and what messages call it.
template <class Handle>
struct Behind;
#define DATAPATH_HANDLE(what, Class)           \
  template <>                                  \
  struct Behind<dp_##what> {                   \
    using type                        = Class; \
    static constexpr char const* name = #what; \
  }
DATAPATH_HANDLE(buffer, Buffer);
DATAPATH_HANDLE(device, Device);
DATAPATH_HANDLE(engine, Engine);
DATAPATH_HANDLE(extent, Extent);
DATAPATH_HANDLE(file, File);
DATAPATH_HANDLE(pool, Pool);
DATAPATH_HANDLE(scheduler, Scheduler);
DATAPATH_HANDLE(ticket, Ticket);
DATAPATH_HANDLE(volume, Volume);
#undef DATAPATH_HANDLE

/// Gives one reference to the caller of the C ABI.
template <class Handle>
[[nodiscard]] Handle* to_handle(Ref<typename Behind<Handle>::type> object) noexcept
{ return reinterpret_cast<Handle*>(object.leak()); }

/// The object behind a handle that may be NULL.
template <class Handle>
[[nodiscard]] typename Behind<Handle>::type* from_handle_or_null(Handle* handle) noexcept
{ return reinterpret_cast<typename Behind<Handle>::type*>(handle); }

/// The object behind a handle; throws DP_ERR_INVALID for NULL.
template <class Handle>
[[nodiscard]] typename Behind<Handle>::type& from_handle(Handle* handle)
{
  if (handle == nullptr) {
    fail(DP_ERR_INVALID, std::string{"the "} + Behind<Handle>::name + " is NULL");
  }
  return *from_handle_or_null(handle);
}

/// A counted reference to the object behind a handle that may be NULL.
template <class Handle>
[[nodiscard]] Ref<typename Behind<Handle>::type> share_handle(Handle* handle)
{ return Ref<typename Behind<Handle>::type>::share(from_handle_or_null(handle)); }

template <class Handle>
void retain_handle(Handle* handle) noexcept
{
  if (handle != nullptr) { from_handle_or_null(handle)->retain(); }
}

template <class Handle>
void release_handle(Handle* handle) noexcept
{
  if (handle != nullptr) { from_handle_or_null(handle)->release(); }
}

/// Where a result goes; throws DP_ERR_INVALID for NULL.
template <class T>
T& result_place(T* out, char const* what)
{
  if (out == nullptr) { fail(DP_ERR_INVALID, std::string{"the place for "} + what + " is NULL"); }
  return *out;
}

/// The caller's options over zeroes: an older caller's struct is shorter. NULL is all defaults.
template <class Options>
[[nodiscard]] Options read_options(Options const* given)
{
  Options options{};
  if (given != nullptr) {
    if (given->size < sizeof(given->size)) {
      fail(DP_ERR_INVALID, "the options' size is not set; set it to sizeof of the struct");
    }
    std::memcpy(&options, given, std::min<std::size_t>(given->size, sizeof(Options)));
  }
  options.size = sizeof(Options);
  return options;
}

/// Fills as much of the caller's struct as it has room for.
template <class Info>
void write_info(Info* out, Info info)
{
  auto& place = result_place(out, "the result");
  if (place.size < sizeof(place.size)) {
    fail(DP_ERR_INVALID, "the result's size is not set; set it to sizeof of the struct");
  }
  info.size = static_cast<std::uint32_t>(std::min<std::size_t>(place.size, sizeof(Info)));
  std::memcpy(out, &info, info.size);
}

/// A string that the caller frees with dp_string_free.
[[nodiscard]] inline char* give_string(std::string_view text)
{
  auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) { throw std::bad_alloc{}; }
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

}  // namespace datapath
