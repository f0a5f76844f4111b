// SPDX-License-Identifier: Apache-2.0
#include "memory/registration.hpp"

#include "memory/reaper.hpp"
#include "memory/registered_spans.hpp"
#include "memory/uses.hpp"
#include "support/error.hpp"
#include "support/fork.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace datapath {

namespace {

using SharedOwner = RegisteredSpans::SharedOwner;

class RegisteredBuffer final : public Buffer {
 public:
  RegisteredBuffer(void* pointer, std::uint64_t nbytes, Ref<Device> device, SharedOwner owner)
    : pointer_{pointer}, nbytes_{nbytes}, device_{std::move(device)}, owner_{std::move(owner)}
  {}

  /// Throws, and changes nothing, if the memory cannot be pinned.
  void pin(bool read_only);
  void stay_plain(std::string reason) { reason_ = std::move(reason); }

  [[nodiscard]] void* data() const noexcept override { return pointer_; }
  [[nodiscard]] std::uint64_t nbytes() const noexcept override { return nbytes_; }
  [[nodiscard]] std::uint64_t device_address() const noexcept override { return device_address_; }
  [[nodiscard]] Device* device() const noexcept override { return device_.get(); }
  [[nodiscard]] bool is_pinned() const noexcept override { return pinned_; }
  [[nodiscard]] bool is_registered() const noexcept override { return true; }
  [[nodiscard]] std::string const& reason() const noexcept override { return reason_; }
  void record_use(Device& device, dp_stream stream) override
  {
    fork_.check("the registered buffer");
    uses_.record(device, stream);
  }

 protected:
  void last_reference_gone() const noexcept override;

 private:
  /// Where the device sees the memory, or 0 if not as one range.
  [[nodiscard]] std::uint64_t find_device_address() const;
  void finish() noexcept;

  ForkGuard fork_;
  void* pointer_;
  std::uint64_t nbytes_;
  Ref<Device> device_;
  SharedOwner owner_;
  std::shared_ptr<RegisteredSpans> spans_;
  std::vector<RegisteredPart> parts_;
  std::uint64_t device_address_{0};
  bool pinned_{false};
  std::string reason_;
  mutable UseRecorder uses_;
};

void RegisteredBuffer::pin(bool read_only)
{
  if (nbytes_ != 0) {
    auto const address = reinterpret_cast<std::uintptr_t>(pointer_);
    auto spans         = RegisteredSpans::of(*device_);
    parts_             = spans->cover(address, address + nbytes_, read_only, *device_, owner_);
    spans_             = std::move(spans);
    device_address_    = find_device_address();
  }
  pinned_ = true;
}

std::uint64_t RegisteredBuffer::find_device_address() const
{
  auto const first = reinterpret_cast<std::uintptr_t>(pointer_);
  auto const base  = device_->mapped_address(pointer_);
  for (auto const& part : parts_) {
    auto const at = std::max<std::uint64_t>(part.start, first);
    if (device_->mapped_address(reinterpret_cast<void const*>(at)) != base + (at - first)) {
      return 0;
    }
  }
  return base;
}

void RegisteredBuffer::finish() noexcept
{
  // Declared first: the owners go last, with the memory unregistered and no lock held.
  std::vector<SharedOwner> owners;
  if (spans_) { owners = spans_->uncover(parts_); }
  owners.push_back(std::move(owner_));
  delete this;
}

void RegisteredBuffer::last_reference_gone() const noexcept
{
  // In a child the memory is not registered, and the owner belongs to the parent.
  if (fork_.inherited()) { return; }
  auto* const self = const_cast<RegisteredBuffer*>(this);
  auto const uses  = std::make_shared<PendingUses>(uses_.take());
  auto const end   = [self, uses] {
    auto const state = uses->poll();
    if (state == PendingUses::State::pending) { return false; }
    // What a failed device may still write to stays registered, and its owner is never released.
    if (state == PendingUses::State::passed) { self->finish(); }
    return true;
  };
  if (!end()) { reap(end); }
}

}  // namespace

Ref<Buffer> register_memory(void* pointer,
                            std::uint64_t nbytes,
                            bool read_only,
                            bool required,
                            Ref<Device> device,
                            dp_owner owner)
{
  auto shared        = std::make_shared<Owner>(owner);
  auto const address = reinterpret_cast<std::uintptr_t>(pointer);
  expects(pointer != nullptr || nbytes == 0, "register: the pointer is NULL");
  expects(address + nbytes >= address,
          "register: the range runs past the end of the address space");
  std::string reason;
  if (!device) { device = Device::open_default(&reason); }
  if (!device && required) { fail(DP_ERR_UNSUPPORTED, "register: cannot pin memory: " + reason); }
  auto buffer = make_ref<RegisteredBuffer>(pointer, nbytes, std::move(device), std::move(shared));
  if (buffer->device() == nullptr) {
    buffer->stay_plain(std::move(reason));
    return buffer;
  }
  try {
    buffer->pin(read_only);
  } catch (Error const& error) {
    if (required || error.info().status == DP_ERR_FORKED) { throw; }
    buffer->stay_plain(error.info().message);
  }
  return buffer;
}

RegistrationStats registration_stats()
{ return RegisteredSpans::total(); }

}  // namespace datapath
