// SPDX-License-Identifier: Apache-2.0
// The Device, streams, events and recorded programs of one GPU, over a Driver.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "dataflow/device.h"
#include "trainer/backends/gpu/driver.h"

namespace penstock::gpu {

class GpuStream;

/// Call this after a failed call. Returns if the GPU still works; throws DeviceLost with both
/// errors if it does not. Waits for the work enqueued on `stream`; null: does not wait for a
/// stream.
void expect_alive(Driver& driver, const DeviceError& failure, StreamHandle stream = nullptr);

class GpuDevice final : public Device {
 public:
  /// `records`: the streams replay what they capture; otherwise they enqueue it again at each
  /// launch.
  explicit GpuDevice(std::unique_ptr<Driver> driver, bool records = true);
  GpuDevice(const GpuDevice&) = delete;
  GpuDevice& operator=(const GpuDevice&) = delete;
  ~GpuDevice() override;

  Buffer allocate(std::size_t bytes, MemoryKind kind) override;
  std::unique_ptr<MemoryPin> pin(std::span<const std::byte> memory) override;
  std::unique_ptr<Stream> make_stream() override;
  std::unique_ptr<Event> make_event() override;

  Driver& driver() noexcept { return *driver_; }
  /// The scalars of the rank that trains on this device.
  StepScalars* scalars() noexcept { return scalars_; }
  /// Copies bytes between any two memories on a separate stream, and blocks until the copy is done.
  /// Not while recording.
  void copy_now(std::byte* to, const std::byte* from, std::size_t bytes);

 private:
  std::unique_ptr<Driver> driver_;
  const bool records_;
  StepScalars* scalars_ = nullptr;
  StreamHandle copies_ = nullptr;
  EventHandle copied_ = nullptr;
};

class GpuEvent final : public Event {
 public:
  explicit GpuEvent(Driver& driver) : driver_(driver), handle_(driver.make_event()) {}
  GpuEvent(const GpuEvent&) = delete;
  GpuEvent& operator=(const GpuEvent&) = delete;
  ~GpuEvent() override { driver_.destroy(handle_); }

  bool wait_until(Time deadline) const override { return driver_.wait_until(handle_, deadline); }
  Nanoseconds since(const Event& earlier) const override {
    return driver_.elapsed(static_cast<const GpuEvent&>(earlier).handle_, handle_);
  }
  EventHandle handle() const noexcept { return handle_; }

 private:
  Driver& driver_;
  const EventHandle handle_;
};

class GpuStream final : public Stream {
 public:
  explicit GpuStream(Driver& driver, bool records = true)
      : driver_(driver), handle_(driver.make_stream()), records_(records) {}
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  ~GpuStream() override { driver_.destroy(handle_); }
  /// The GpuStream behind a Stream of a GpuDevice.
  static GpuStream& of(Stream& stream) { return *static_cast<GpuStream*>(stream.native()); }

  void record(Event& event) override {
    driver_.record(handle_, static_cast<GpuEvent&>(event).handle());
  }
  void wait_for(const Event& event) override {
    driver_.wait(handle_, static_cast<const GpuEvent&>(event).handle());
  }
  void copy(std::span<std::byte> to, std::span<const std::byte> from) override {
    driver_.copy(handle_, to.data(), from.data(), to.size());
  }
  /// While recording, a DeviceError names the option that turns recording off.
  std::unique_ptr<Program> capture(const std::function<void()>& enqueue) override;
  void* native() noexcept override { return this; }

  StreamHandle handle() const noexcept { return handle_; }
  /// Blocks until all enqueued work is done. Not while recording.
  void finish();
  /// Runs `action` now. While recording, runs it before each launch of the program instead: for
  /// work that changes from launch to launch.
  void at_launch(std::function<void()> action);

 private:
  std::unique_ptr<Program> record_program(const std::function<void()>& enqueue);

  Driver& driver_;
  const StreamHandle handle_;
  const bool records_;
  std::vector<std::function<void()>>* recording_ = nullptr;
};

}  // namespace penstock::gpu
