// SPDX-License-Identifier: Apache-2.0
#include "trainer/loss_scale.h"

#include <cstring>

#include "dataflow/device.h"
#include "dataflow/error.h"
#include "trainer/backend.h"

namespace penstock {
namespace {

void copy_now(std::span<std::byte> to, std::span<const std::byte> from, Device& device) {
  PENSTOCK_ASSERT(to.size() == sizeof(LossScale) && from.size() == sizeof(LossScale));
  const std::unique_ptr<Stream> stream = device.make_stream();
  const std::unique_ptr<Event> done = device.make_event();
  stream->copy(to, from);
  stream->record(*done);
  done->wait_until(Time::max());
}

}  // namespace

LossScale read_loss_scale(const Tensor& from, Device& device) {
  const Buffer pinned = device.allocate(sizeof(LossScale), MemoryKind::pinned);
  copy_now(pinned.bytes(), bytes_of(from), device);
  LossScale scale;
  std::memcpy(&scale, pinned.bytes().data(), sizeof scale);
  return scale;
}

void write_loss_scale(const LossScale& scale, const Tensor& to, Device& device) {
  const Buffer pinned = device.allocate(sizeof(LossScale), MemoryKind::pinned);
  std::memcpy(pinned.bytes().data(), &scale, sizeof scale);
  copy_now(bytes_of(to), pinned.bytes(), device);
}

}  // namespace penstock
