// SPDX-License-Identifier: Apache-2.0
#include "shim/cufile.hpp"

#include "shim/cuda.hpp"
#include "support/error.hpp"
#include "support/per_process.hpp"

#include <dlfcn.h>

#include <mutex>

namespace datapath::cufile {

namespace {

constexpr char const* library_name = "libcufile.so.0";

/// cuFile must not be used in a process forked from one that used it.
struct Loader {
  explicit Loader(Loader const* parent) : used_by_parent{parent != nullptr && parent->open} {}
  bool const used_by_parent;
  std::mutex mutex;
  bool open{false};
  Library functions;
};

PerProcess<Loader> loader;

template <class Function>
void find(void* handle, char const* name, Function*& function)
{
  function = reinterpret_cast<Function*>(::dlsym(handle, name));
  if (function == nullptr) {
    fail(DP_ERR_UNSUPPORTED,
         std::string{library_name} + " has no function " + name + "; install a newer cuFile");
  }
}

Library load()
{
  // Never unloaded: it has threads of its own.
  void* const handle = ::dlopen(library_name, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    char const* const why = ::dlerror();
    fail(DP_ERR_UNSUPPORTED,
         std::string{"cuFile cannot be loaded: "} + (why != nullptr ? why : library_name) +
           "; install GPUDirect Storage (nvidia-gds) or the wheel nvidia-cufile, and have its "
           "folder on the "
           "loader's path");
  }
  Library functions;
  find(handle, "cuFileDriverOpen", functions.driver_open);
  find(handle, "cuFileDriverGetProperties", functions.driver_properties);
  find(handle, "cuFileHandleRegister", functions.handle_register);
  find(handle, "cuFileHandleDeregister", functions.handle_deregister);
  find(handle, "cuFileRead", functions.read);
  find(handle, "cuFileWrite", functions.write);
  return functions;
}

}  // namespace

Library const& library()
{
  auto& state = loader.get();
  std::lock_guard const lock{state.mutex};
  if (state.open) { return state.functions; }
  if (state.used_by_parent) {
    fail(
      DP_ERR_UNSUPPORTED,
      "cuFile was in use before this process was forked and cannot be used here; start the process "
      "with the 'spawn' method");
  }
  // A driver without a device would let cuFile open and every transfer fail.
  if (cuda::device_count() == 0) {
    fail(DP_ERR_UNSUPPORTED, "cuFile moves bytes of GPUs, and there is no visible GPU");
  }
  auto const functions = load();
  if (auto const outcome = functions.driver_open(); !outcome.ok()) {
    fail(
      DP_ERR_UNSUPPORTED,
      "cuFileDriverOpen failed: " + describe_outcome(outcome) +
        "; see cufile.log, and 'allow_compat_mode' in cufile.json where nvidia-fs is not loaded");
  }
  state.functions = functions;
  state.open      = true;
  return state.functions;
}

bool is_direct(Library const& library) noexcept
{
  Properties properties{};
  if (!library.driver_properties(&properties).ok()) { return false; }
  return properties.nvfs_major != 0 || (properties.features & feature_p2p) != 0;
}

std::string describe_outcome(Outcome outcome)
{
  return "cuFile error " + std::to_string(outcome.operation) + ", CUDA error " +
         std::to_string(outcome.cuda);
}

}  // namespace datapath::cufile
