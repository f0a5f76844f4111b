// SPDX-License-Identifier: Apache-2.0
#include "io/cufile_backend.hpp"

#include "shim/cuda.hpp"
#include "support/error.hpp"
#include "support/log.hpp"

#include <cerrno>
#include <string>

namespace datapath {

namespace {

void check(cuda::Driver const& driver, cuda::Result result, char const* call)
{
  if (result != cuda::success) { throw Error{cuda::call_error(driver, result, call)}; }
}

/// Makes a context current; cuFile takes the calling thread's.
class CurrentContext {
 public:
  explicit CurrentContext(cuda::Context context) : driver_{cuda::driver()}
  { check(driver_, driver_.context_push(context), "cuCtxPushCurrent"); }
  ~CurrentContext()
  {
    cuda::Context popped = nullptr;
    (void)driver_.context_pop(&popped);
  }
  CurrentContext(CurrentContext const&)            = delete;
  CurrentContext& operator=(CurrentContext const&) = delete;

 private:
  cuda::Driver const& driver_;
};

}  // namespace

CufileBackend::CufileBackend(BackendOptions const& options)
  : ThreadsBackend{options}, library_{cufile::library()}
{}

// The threads call `attempt`, so they end before this part of the object does.
CufileBackend::~CufileBackend()
{ join_idle(); }

cuda::Context CufileBackend::context_of(int ordinal)
{
  std::lock_guard const lock{mutex_};
  auto& context = contexts_[ordinal];
  if (context == nullptr) {
    auto const& driver        = cuda::driver();
    cuda::DeviceHandle device = 0;
    check(driver, driver.device_get(&device, ordinal), "cuDeviceGet");
    // Kept for the life of the process, as the library's devices keep theirs.
    check(driver, driver.primary_retain(&context, device), "cuDevicePrimaryCtxRetain");
  }
  return context;
}

cufile::Handle CufileBackend::handle_of(Descriptors const& file)
{
  std::lock_guard const lock{mutex_};
  auto const found = handles_.find(&file);
  if (found != handles_.end()) { return found->second; }
  cufile::FileDescription description{};
  description.type      = cufile::type_descriptor;
  description.file.fd   = file.use_direct() ? file.direct : file.buffered;
  cufile::Handle handle = nullptr;
  if (auto const outcome = library_.handle_register(&handle, &description); !outcome.ok()) {
    fail(
      DP_ERR_UNSUPPORTED,
      "cuFileHandleRegister of '" + file.path + "' failed: " + cufile::describe_outcome(outcome));
  }
  handles_.emplace(&file, handle);
  return handle;
}

void CufileBackend::forget(Descriptors const& file) noexcept
{
  std::lock_guard const lock{mutex_};
  auto const found = handles_.find(&file);
  if (found == handles_.end()) { return; }
  library_.handle_deregister(found->second);
  handles_.erase(found);
}

std::int64_t CufileBackend::attempt_on_device(IoPiece const& piece)
{
  CurrentContext const context{context_of(cuda::pointer_ordinal(piece.pointer))};
  auto* const handle = handle_of(*piece.file);
  auto const offset  = static_cast<off_t>(piece.offset);
  errno              = 0;
  auto const moved   = piece.op == IoOp::read
                         ? library_.read(handle, piece.pointer, piece.attempt_bytes(), offset, 0)
                         : library_.write(handle, piece.pointer, piece.attempt_bytes(), offset, 0);
  if (moved >= 0) { return moved; }
  // -1 says that errno has the reason; what is below is cuFile's own error, negated.
  if (moved == -1) { return errno != 0 ? -errno : -EIO; }
  log(
    LogLevel::error,
    "io.cufile",
    "a transfer of '" + piece.file->path + "' failed with cuFile error " + std::to_string(-moved));
  return -EIO;
}

std::int64_t CufileBackend::attempt(IoPiece const& piece) noexcept
{
  if (!piece.device_memory) { return ThreadsBackend::attempt(piece); }
  try {
    return attempt_on_device(piece);
  } catch (std::exception const& error) {
    log(LogLevel::error, "io.cufile", error.what());
    return -ENOTSUP;
  }
}

void CufileBackend::describe(JsonWriter& json) const
{
  ThreadsBackend::describe(json);
  json.field("gpu_direct", cufile::is_direct(library_));
}

}  // namespace datapath
