// SPDX-License-Identifier: Apache-2.0
#include "dataflow/stager.h"

#include <exception>
#include <utility>

#include "dataflow/error.h"

namespace penstock {

Stager::Stager(BatchRing& host, std::size_t reader, BatchRing& device_ring, Device& device,
               const Marks& marks)
    : host_(host),
      reader_(reader),
      device_ring_(device_ring),
      stream_(device.make_stream()),
      settled_(device.make_event()),
      marks_(marks) {
  PENSTOCK_ASSERT(host.spec() == device_ring.spec());
}

void Stager::run(std::stop_token stop) noexcept {
  try {
    copy_all(std::move(stop));
    device_ring_.close();
  } catch (...) {
    device_ring_.fail(std::current_exception());
  }
}

void Stager::copy_all(std::stop_token stop) {
  const auto slot = [&] {
    const Mark mark(marks_, "wait for a slot");
    return device_ring_.acquire(stop);
  };
  const auto next = [&] {
    const Mark mark(marks_, "wait for a batch");
    return host_.next(reader_, stop);
  };
  while (WriteLease to = slot()) {
    ReadLease from = next();
    if (!from) return;
    copy(std::move(from), std::move(to));
  }
}

void Stager::copy(ReadLease from, WriteLease to) {
  const Mark mark(marks_, "copy");
  try {
    from.await(*stream_);
    to.await(*stream_);
    stream_->copy(to.batch().pixels, from.batch().pixels);
    stream_->copy(std::as_writable_bytes(to.batch().labels), std::as_bytes(from.batch().labels));
    to.batch().valid = from.batch().valid;
    std::move(from).release(*stream_);
    std::move(to).publish(*stream_);
  } catch (...) {
    settle(*stream_, *settled_);  // the leases may be given back now
    throw;
  }
}

}  // namespace penstock
