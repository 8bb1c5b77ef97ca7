// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "dataflow/error.h"

namespace penstock::gpu {
namespace {

constexpr std::align_val_t kPage{4096};

class GpuProgram final : public Program {
 public:
  GpuProgram(Driver& driver, GraphHandle graph, std::vector<std::function<void()>> at_launch)
      : driver_(driver), graph_(graph), at_launch_(std::move(at_launch)) {}
  GpuProgram(const GpuProgram&) = delete;
  GpuProgram& operator=(const GpuProgram&) = delete;
  ~GpuProgram() override { driver_.destroy(graph_); }

  void launch(Stream& stream) override {
    for (const auto& action : at_launch_) action();
    driver_.launch(GpuStream::of(stream).handle(), graph_);
  }

 private:
  Driver& driver_;
  const GraphHandle graph_;
  const std::vector<std::function<void()>> at_launch_;
};

class GpuPin final : public MemoryPin {
 public:
  GpuPin(Driver& driver, std::span<const std::byte> memory) : driver_(driver), memory_(memory) {}
  GpuPin(const GpuPin&) = delete;
  GpuPin& operator=(const GpuPin&) = delete;
  ~GpuPin() override { driver_.unpin(memory_); }

 private:
  Driver& driver_;
  const std::span<const std::byte> memory_;
};

}  // namespace

void expect_alive(Driver& driver, const DeviceError& failure, StreamHandle stream) {
  try {
    std::optional<GpuStream> fresh;
    if (stream == nullptr) stream = fresh.emplace(driver).handle();
    const GpuEvent reached(driver);
    driver.record(stream, reached.handle());
    reached.wait_until(Time::max());
  } catch (const DeviceError& error) {
    throw DeviceLost(
        fmt::format("{}; after that {} fails every call of this process ({}): run again, and under "
                    "compute-sanitizer if it happens again",
                    failure.what(), driver.facts().name, error.what()));
  }
}

GpuDevice::GpuDevice(std::unique_ptr<Driver> driver, bool records)
    : driver_(std::move(driver)),
      records_(records),
      scalars_(reinterpret_cast<StepScalars*>(
          driver_->allocate(sizeof(StepScalars), MemoryKind::device))),
      copies_(driver_->make_stream()),
      copied_(driver_->make_event()) {
  const StepScalars first;
  copy_now(reinterpret_cast<std::byte*>(scalars_), reinterpret_cast<const std::byte*>(&first),
           sizeof(first));
}

GpuDevice::~GpuDevice() {
  driver_->destroy(copied_);
  driver_->destroy(copies_);
  driver_->free(reinterpret_cast<std::byte*>(scalars_), MemoryKind::device);
}

Buffer GpuDevice::allocate(std::size_t bytes, MemoryKind kind) {
  if (kind == MemoryKind::host) {
    auto* const data = static_cast<std::byte*>(::operator new(bytes, kPage));
    std::fill_n(data, bytes, std::byte{});
    return Buffer(data, bytes, [](std::byte* memory) { ::operator delete(memory, kPage); });
  }
  return Buffer(driver_->allocate(bytes, kind), bytes,
                [driver = driver_.get(), kind](std::byte* memory) { driver->free(memory, kind); });
}

std::unique_ptr<MemoryPin> GpuDevice::pin(std::span<const std::byte> memory) {
  if (!driver_->pin(memory)) return nullptr;
  return std::make_unique<GpuPin>(*driver_, memory);
}

std::unique_ptr<Stream> GpuDevice::make_stream() {
  return std::make_unique<GpuStream>(*driver_, records_);
}
std::unique_ptr<Event> GpuDevice::make_event() { return std::make_unique<GpuEvent>(*driver_); }

void GpuDevice::copy_now(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  driver_->copy(copies_, to, from, bytes);
  driver_->record(copies_, copied_);
  driver_->wait_until(copied_, Time::max());
}

std::unique_ptr<Program> GpuStream::capture(const std::function<void()>& enqueue) {
  if (!records_) return std::make_unique<Closure>(enqueue);
  try {
    return record_program(enqueue);
  } catch (const DeviceError& error) {
    throw DeviceError(
        "{}, while a step was being recorded; --device gpu:record=false does not record steps, but "
        "enqueues each one",
        error.what());
  }
}

std::unique_ptr<Program> GpuStream::record_program(const std::function<void()>& enqueue) {
  std::vector<std::function<void()>> actions;
  driver_.begin_capture(handle_);
  recording_ = &actions;
  GraphHandle graph = nullptr;
  try {
    enqueue();
    graph = driver_.end_capture(handle_);
  } catch (...) {
    recording_ = nullptr;
    driver_.abandon_capture(handle_);
    throw;
  }
  recording_ = nullptr;
  return std::make_unique<GpuProgram>(driver_, graph, std::move(actions));
}

void GpuStream::finish() {
  const GpuEvent done(driver_);
  driver_.record(handle_, done.handle());
  done.wait_until(Time::max());
}

void GpuStream::at_launch(std::function<void()> action) {
  if (recording_ != nullptr) {
    recording_->push_back(std::move(action));
  } else {
    action();
  }
}

}  // namespace penstock::gpu
