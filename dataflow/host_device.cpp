// SPDX-License-Identifier: Apache-2.0
#include "dataflow/host_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "dataflow/error.h"

namespace penstock {

void Timeline::occupy(Nanoseconds duration) { free_at_ = free_at() + duration; }
void Timeline::hold_until(Time moment) { free_at_ = std::max(free_at_, moment); }
Time Timeline::free_at() const { return std::max(free_at_, clock_.now()); }

class PinnedMemory::Pin final : public MemoryPin {
 public:
  Pin(PinnedMemory& all, const std::byte* block) : all_(all), block_(block) {}
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  ~Pin() override {
    const std::lock_guard lock(all_.mutex_);
    all_.ends_.erase(block_);
  }

 private:
  PinnedMemory& all_;
  const std::byte* const block_;
};

std::unique_ptr<MemoryPin> PinnedMemory::add(std::span<const std::byte> block) {
  const std::lock_guard lock(mutex_);
  ends_[block.data()] = block.data() + block.size();
  return std::make_unique<Pin>(*this, block.data());
}

bool PinnedMemory::has(const std::byte* address) const {
  const std::lock_guard lock(mutex_);
  const auto after = ends_.upper_bound(address);
  return after != ends_.begin() && address < std::prev(after)->second;
}

namespace {

constexpr std::size_t kPage = 4096;
/// Size of a transparent huge page on x86-64 and most arm64 kernels.
constexpr std::size_t kHugePage = std::size_t{2} << 20;

class HostEvent final : public Event {
 public:
  HostEvent(Clock& clock, const HostDeviceOptions& options) : clock_(clock), options_(options) {}

  bool wait_until(Time deadline) const override {
    const Time target = std::min(moment, deadline);
    if (target > clock_.now()) {
      const Nanoseconds spun = clock_.sleep_exactly_until(target, options_.spin);
      const Nanoseconds late = clock_.now() - target;
      if (late < Nanoseconds{}) return false;  // the clock of a device that is being stopped
      if (options_.waited) options_.waited(late, spun);
    }
    return moment <= deadline;
  }
  Nanoseconds since(const Event& earlier) const override {
    return moment - static_cast<const HostEvent&>(earlier).moment;
  }

  Time moment{};

 private:
  Clock& clock_;
  const HostDeviceOptions& options_;
};

class HostStream final : public Stream {
 public:
  HostStream(Clock& clock, const HostDeviceOptions& options)
      : clock_(clock), options_(options), timeline_(clock) {}

  void record(Event& event) override {
    static_cast<HostEvent&>(event).moment = timeline_.free_at();
  }
  void wait_for(const Event& event) override {
    const Time moment = static_cast<const HostEvent&>(event).moment;
    timeline_.hold_until(moment);
    needed_ = std::max(needed_, moment);
  }
  void copy(std::span<std::byte> to, std::span<const std::byte> from) override {
    PENSTOCK_ASSERT(to.size() == from.size());
    const Time begin = timeline_.free_at();
    if (options_.copies) {
      // The bytes move now, so everything that the stream waits for must be over now, except its
      // own copies, whose bytes have moved already. It does not spin: staging's CPU time must be
      // the copies' alone.
      if (begin > copied_until_) needed_ = begin;
      clock_.sleep_exactly_until(needed_, {});
      std::memcpy(to.data(), from.data(), from.size());
    }
    const bool pageable = options_.pinned != nullptr && !options_.pinned->has(from.data());
    const double rate = pageable ? options_.pageable_bytes_per_s : options_.copy_bytes_per_s;
    if (rate <= 0) return;
    const std::chrono::duration<double> busy(static_cast<double>(from.size()) / rate);
    timeline_.hold_until(begin + std::chrono::round<Nanoseconds>(busy));
    copied_until_ = timeline_.free_at();
  }
  std::unique_ptr<Program> capture(const std::function<void()>& enqueue) override {
    return std::make_unique<Closure>(enqueue);
  }
  void* native() noexcept override { return &timeline_; }

 private:
  Clock& clock_;
  const HostDeviceOptions& options_;
  Timeline timeline_;
  Time copied_until_{};  // when the last copy is done
  Time needed_{};        // when the work that the next copy depends on is over, except copies
};

}  // namespace

HostDevice::HostDevice(Clock& clock, HostDeviceOptions options)
    : clock_(clock), options_(std::move(options)) {}

Buffer HostDevice::allocate(std::size_t bytes, MemoryKind kind) {
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : kPage;
  const std::size_t size = (bytes + alignment - 1) / alignment * alignment;
  auto* data = static_cast<std::byte*>(std::aligned_alloc(alignment, size));
  if (data == nullptr) {
    throw DeviceError("cannot allocate {} bytes of host memory; lower --batch-size or --prefetch",
                      bytes);
  }
  if (alignment == kHugePage) madvise(data, size, MADV_HUGEPAGE);  // a hint; refusal costs nothing
  std::memset(data, 0, size);
  std::shared_ptr<MemoryPin> pin;
  if (options_.pinned != nullptr && kind != MemoryKind::host) pin = this->pin({data, bytes});
  return Buffer(data, bytes, [pin](std::byte* block) mutable {
    pin.reset();
    std::free(block);
  });
}

std::unique_ptr<MemoryPin> HostDevice::pin(std::span<const std::byte> memory) {
  return options_.pinned == nullptr ? Device::pin(memory) : options_.pinned->add(memory);
}

std::unique_ptr<Stream> HostDevice::make_stream() {
  return std::make_unique<HostStream>(clock_, options_);
}

std::unique_ptr<Event> HostDevice::make_event() {
  return std::make_unique<HostEvent>(clock_, options_);
}

}  // namespace penstock
