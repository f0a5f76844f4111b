// SPDX-License-Identifier: Apache-2.0
#include "shim/cuda.hpp"

#include "support/per_process.hpp"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>

namespace datapath::cuda {

namespace {

constexpr char const* library_name = "libcuda.so.1";

std::atomic<bool> exiting{false};

/// What this process knows of the driver. A child learns from its parent's that the driver was in
/// use.
struct Loader {
  explicit Loader(Loader const* parent)
    : parent_initialized{parent != nullptr && (parent->parent_initialized ||
                                               parent->initialized.load(std::memory_order_acquire))}
  {}

  bool const parent_initialized;
  std::atomic<bool> initialized{false};  ///< cuInit was called, whatever it said.
  std::atomic<Driver const*> ready{nullptr};
  std::mutex mutex;
  Driver functions;
  Status status;
  std::map<int, Context> contexts;
};

PerProcess<Loader> loader;

using GetProcAddress =
  Result(char const* symbol, void** function, int version, std::uint64_t flags, int* found);
using GetProcAddressBefore12 = Result(char const* symbol,
                                      void** function,
                                      int version,
                                      std::uint64_t flags);

/// Looks functions up in the loaded library: by name and version where the driver can, else by
/// symbol.
class Resolver {
 public:
  explicit Resolver(void* library)
    : library_{library},
      by_version_{reinterpret_cast<GetProcAddress*>(::dlsym(library, "cuGetProcAddress_v2"))},
      by_version_before_12_{
        reinterpret_cast<GetProcAddressBefore12*>(::dlsym(library, "cuGetProcAddress"))}
  {}

  [[nodiscard]] void* find(char const* name, char const* exported, int version) const
  {
    void* function = nullptr;
    int found      = 0;
    if (by_version_ != nullptr) {
      if (by_version_(name, &function, version, proc_address_legacy_stream, &found) == success &&
          function != nullptr) {
        return function;
      }
    } else if (by_version_before_12_ != nullptr) {
      if (by_version_before_12_(name, &function, version, proc_address_legacy_stream) == success &&
          function != nullptr) {
        return function;
      }
    }
    return ::dlsym(library_, exported);
  }

 private:
  void* library_;
  GetProcAddress* by_version_;
  GetProcAddressBefore12* by_version_before_12_;
};

/// Fills the table; returns what a required function is missing, or nothing.
std::string resolve(void* library, Driver& functions)
{
  Resolver const resolver{library};
  std::string missing;
#define DATAPATH_CUDA_RESOLVE(member, name, exported, version, required, ...)         \
  functions.member =                                                                  \
    reinterpret_cast<Function<__VA_ARGS__>>(resolver.find(#name, exported, version)); \
  if (required && functions.member == nullptr) {                                      \
    missing.append(missing.empty() ? "" : ", ").append(exported);                     \
  }
  DATAPATH_CUDA_FUNCTIONS(DATAPATH_CUDA_RESOLVE)
#undef DATAPATH_CUDA_RESOLVE
  return missing;
}

Status load(Loader& state)
{
  if (state.parent_initialized) {
    return {State::unusable,
            "CUDA was initialised in the parent before this process was forked and cannot be used "
            "here; start workers with the 'spawn' method, or fork before the first use of CUDA",
            0};
  }
  auto* const library = ::dlopen(library_name, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    auto const* text = ::dlerror();  // NOLINT(concurrency-mt-unsafe): per thread in glibc
    return {
      State::missing, std::string{"no CUDA driver: "} + (text == nullptr ? library_name : text), 0};
  }
  auto const missing = resolve(library, state.functions);
  if (!missing.empty()) {
    return {State::unusable,
            "the CUDA driver is too old: it lacks " + missing + "; CUDA 11.0 or newer is needed",
            0};
  }
  auto const& functions = state.functions;
  state.initialized.store(true, std::memory_order_release);
  if (auto const result = functions.init(0); result != success) {
    std::string reason = "cuInit failed: " + describe_result(functions, result);
    if (result == error_no_device) {
      auto const* visible = std::getenv("CUDA_VISIBLE_DEVICES");  // NOLINT(concurrency-mt-unsafe)
      reason += visible == nullptr ? "; CUDA_VISIBLE_DEVICES is not set"
                                   : "; CUDA_VISIBLE_DEVICES is '" + std::string{visible} + "'";
    } else if (result == error_not_initialized) {
      reason +=
        "; this process was forked after CUDA was initialised, start it with the 'spawn' method";
    }
    return {State::unusable, std::move(reason), 0};
  }
  int count = 0;
  if (functions.device_get_count(&count) != success || count == 0) {
    return {State::unusable, "the CUDA driver shows no device", 0};
  }
  int version = 0;
  (void)functions.driver_get_version(&version);
  state.functions.version = version;
  // Registered after the driver's own handlers, so it runs before them.
  (void)std::atexit([] { exiting.store(true, std::memory_order_release); });
  return {State::ready, {}, version};
}

/// The two functions that pointer_ordinal needs, from a driver that somebody else loaded.
struct ForeignDriver {
  decltype(Driver::context_get_current) context_get_current{nullptr};
  decltype(Driver::pointer_get_attributes) pointer_get_attributes{nullptr};
};

ForeignDriver foreign_driver()
{
  auto* const library =
    ::dlopen(library_name, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD | RTLD_NODELETE);
  if (library == nullptr) { return {}; }
  Resolver const resolver{library};
  ForeignDriver found;
  found.context_get_current = reinterpret_cast<decltype(found.context_get_current)>(
    resolver.find("cuCtxGetCurrent", "cuCtxGetCurrent", 4000));
  found.pointer_get_attributes = reinterpret_cast<decltype(found.pointer_get_attributes)>(
    resolver.find("cuPointerGetAttributes", "cuPointerGetAttributes", 7000));
  (void)::dlclose(library);
  return found;
}

std::string_view text_of(decltype(Driver::get_error_name) function, Result result)
{
  char const* text = nullptr;
  if (function == nullptr || function(result, &text) != success || text == nullptr) {
    return "unknown error";
  }
  return text;
}

}  // namespace

Status status()
{
  auto& state = loader.get();
  std::lock_guard const lock{state.mutex};
  return state.status;
}

Driver const& driver()
{
  auto& state = loader.get();
  if (auto const* ready = state.ready.load(std::memory_order_acquire); ready != nullptr) {
    return *ready;
  }
  std::lock_guard const lock{state.mutex};
  if (state.status.state == State::untried) { state.status = load(state); }
  if (state.status.state != State::ready) { fail(DP_ERR_UNSUPPORTED, state.status.reason); }
  state.ready.store(&state.functions, std::memory_order_release);
  return state.functions;
}

int device_count()
{
  auto const& functions = driver();
  int count             = 0;
  if (auto const result = functions.device_get_count(&count); result != success) {
    throw Error{call_error(functions, result, "cuDeviceGetCount")};
  }
  return count;
}

std::string device_name(int ordinal)
{
  auto const& functions = driver();
  DeviceHandle device   = 0;
  std::array<char, 256> name{};
  auto result = functions.device_get(&device, ordinal);
  if (result == success) {
    result = functions.device_get_name(name.data(), static_cast<int>(name.size()), device);
  }
  if (result != success) { throw Error{call_error(functions, result, "cuDeviceGetName")}; }
  return name.data();
}

Context primary_context(int ordinal)
{
  auto const& functions = driver();
  auto& state           = loader.get();
  std::lock_guard const lock{state.mutex};
  auto& context = state.contexts[ordinal];
  if (context == nullptr) {
    DeviceHandle device = 0;
    auto result         = functions.device_get(&device, ordinal);
    if (result == success) { result = functions.primary_retain(&context, device); }
    if (result != success) {
      context = nullptr;
      throw Error{call_error(
        functions, result, "cuDevicePrimaryCtxRetain of cuda:" + std::to_string(ordinal))};
    }
  }
  return context;
}

int current_ordinal()
{
  auto const& functions = driver();
  Context context       = nullptr;
  if (functions.context_get_current(&context) != success || context == nullptr) { return 0; }
  DeviceHandle current = 0;
  if (auto const result = functions.context_get_device(&current); result != success) {
    throw Error{call_error(functions, result, "cuCtxGetDevice")};
  }
  for (int ordinal = 0, count = device_count(); ordinal < count; ++ordinal) {
    DeviceHandle device = 0;
    if (functions.device_get(&device, ordinal) == success && device == current) { return ordinal; }
  }
  fail(DP_ERR_INTERNAL, "the current CUDA context belongs to none of the visible devices");
}

int pointer_ordinal(void const* pointer)
{
  auto& state = loader.get();
  if (pointer == nullptr || state.parent_initialized || process_exiting()) { return -1; }
  ForeignDriver functions;
  if (auto const* ready = state.ready.load(std::memory_order_acquire); ready != nullptr) {
    functions = {ready->context_get_current, ready->pointer_get_attributes};
  } else {
    functions = foreign_driver();
    if (functions.context_get_current == nullptr || functions.pointer_get_attributes == nullptr) {
      return -1;
    }
    Context context = nullptr;
    if (functions.context_get_current(&context) == error_not_initialized) { return -1; }
  }
  auto const address = static_cast<DevicePointer>(reinterpret_cast<std::uintptr_t>(pointer));
  unsigned type      = 0;
  int ordinal        = -1;
  std::array attributes{pointer_memory_type, pointer_device_ordinal};
  std::array<void*, 2> values{&type, &ordinal};
  auto const result = functions.pointer_get_attributes(
    static_cast<unsigned>(attributes.size()), attributes.data(), values.data(), address);
  // What the driver never heard of is ordinary memory; it says so by zeros, or without a context
  // by errors.
  if (result == error_invalid_value || result == error_invalid_context ||
      result == error_not_initialized || result == error_deinitialized) {
    return -1;
  }
  if (result != success) {
    throw Error{ErrorInfo{DP_ERR_CUDA,
                          "cuPointerGetAttributes failed with CUresult " + std::to_string(result),
                          {},
                          -1,
                          0,
                          result}};
  }
  return type == memory_type_unknown || type == memory_type_host ? -1 : ordinal;
}

std::string describe_result(Driver const& driver, Result result)
{
  std::string text{text_of(driver.get_error_name, result)};
  text.append(" (").append(std::to_string(result)).append("): ");
  return text.append(text_of(driver.get_error_string, result));
}

ErrorInfo call_error(Driver const& driver, Result result, std::string call)
{
  auto const status = result == error_out_of_memory ? DP_ERR_BUDGET : DP_ERR_CUDA;
  return ErrorInfo{
    status, std::move(call) + " failed: " + describe_result(driver, result), {}, -1, 0, result};
}

bool process_exiting() noexcept
{ return exiting.load(std::memory_order_acquire); }

}  // namespace datapath::cuda
