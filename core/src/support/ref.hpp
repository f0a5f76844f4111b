// SPDX-License-Identifier: Apache-2.0
/// @file
/// Intrusive reference counting: one pointer type for internals and for the C handles.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace datapath {

/// Base of everything that the C ABI hands out. Starts with one reference, which `make_ref` adopts.
class RefCounted {
 public:
  RefCounted(RefCounted const&)            = delete;
  RefCounted& operator=(RefCounted const&) = delete;

  void retain() const noexcept { count_.fetch_add(1, std::memory_order_relaxed); }

  void release() const noexcept
  {
    if (count_.fetch_sub(1, std::memory_order_acq_rel) == 1) { last_reference_gone(); }
  }

  /// Adds a reference unless the last one is gone already; for weak tables.
  [[nodiscard]] bool retain_if_alive() const noexcept
  {
    auto seen = count_.load(std::memory_order_relaxed);
    while (seen != 0) {
      if (count_.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel)) { return true; }
    }
    return false;
  }

 protected:
  RefCounted()          = default;
  virtual ~RefCounted() = default;

  /// What happens at zero; an object that must outlive its last reference for a while overrides it.
  virtual void last_reference_gone() const noexcept { delete this; }

 private:
  mutable std::atomic<std::uint32_t> count_{1};
};

/// Owning pointer to a RefCounted.
template <class T>
class Ref {
 public:
  Ref() noexcept = default;
  Ref(std::nullptr_t) noexcept {}  // NOLINT(google-explicit-constructor)

  /// Adds a reference to an object that somebody else holds.
  [[nodiscard]] static Ref share(T* object) noexcept
  {
    if (object != nullptr) { object->retain(); }
    return adopt(object);
  }
  /// Takes over one reference.
  [[nodiscard]] static Ref adopt(T* object) noexcept
  {
    Ref ref;
    ref.object_ = object;
    return ref;
  }

  Ref(Ref const& other) noexcept : object_{other.object_}
  {
    if (object_ != nullptr) { object_->retain(); }
  }
  Ref(Ref&& other) noexcept : object_{std::exchange(other.object_, nullptr)} {}
  template <class U>
    requires std::is_convertible_v<U*, T*>
  Ref(Ref<U> other) noexcept : object_{other.leak()}  // NOLINT(google-explicit-constructor)
  {}
  Ref& operator=(Ref other) noexcept
  {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref()
  {
    if (object_ != nullptr) { object_->release(); }
  }

  [[nodiscard]] T* get() const noexcept { return object_; }
  /// Gives the reference away, to a C handle.
  [[nodiscard]] T* leak() noexcept { return std::exchange(object_, nullptr); }
  T& operator*() const noexcept { return *object_; }
  T* operator->() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  friend bool operator==(Ref const& a, Ref const& b) noexcept { return a.object_ == b.object_; }

 private:
  T* object_{nullptr};
};

template <class T, class... Arguments>
[[nodiscard]] Ref<T> make_ref(Arguments&&... arguments)
{ return Ref<T>::adopt(new T(std::forward<Arguments>(arguments)...)); }

}  // namespace datapath
