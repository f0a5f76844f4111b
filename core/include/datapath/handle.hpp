// SPDX-License-Identifier: Apache-2.0
/// @file
/// A counted reference to an object of the library, and owners made of C++ values.
#pragma once

#include <datapath/error.hpp>

#include <string>
#include <utility>

namespace datapath::client {

/// Copies share the object; the last one lets it go. Work in flight keeps what it needs.
template <class Raw, void (*Retain)(Raw*), void (*Release)(Raw*)>
class Handle {
 public:
  Handle() noexcept = default;
  Handle(Handle const& other) noexcept : raw_{other.raw_}
  {
    if (raw_ != nullptr) { Retain(raw_); }
  }
  Handle(Handle&& other) noexcept : raw_{std::exchange(other.raw_, nullptr)} {}
  Handle& operator=(Handle other) noexcept
  {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Handle()
  {
    if (raw_ != nullptr) { Release(raw_); }
  }

  /// The C handle; this object keeps its reference.
  [[nodiscard]] Raw* get() const noexcept { return raw_; }
  /// The C handle with its reference.
  [[nodiscard]] Raw* release() noexcept { return std::exchange(raw_, nullptr); }
  explicit operator bool() const noexcept { return raw_ != nullptr; }

 protected:
  /// Takes over one reference.
  explicit Handle(Raw* raw) noexcept : raw_{raw} {}

 private:
  Raw* raw_{nullptr};
};

/// An owner that keeps `value` until the library releases it, on any thread.
template <class T>
[[nodiscard]] dp_owner own(T value)
{
  return dp_owner{[](void* context) { delete static_cast<T*>(context); }, new T(std::move(value))};
}

namespace detail {

/// Takes a string that the library gave.
inline std::string take_string(char* text)
{
  std::string copy{text == nullptr ? "" : text};
  dp_string_free(text);
  return copy;
}

}  // namespace detail

}  // namespace datapath::client
