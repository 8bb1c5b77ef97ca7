// SPDX-License-Identifier: Apache-2.0
#include "dataflow/stager.h"

#include <exception>
#include <utility>

#include "dataflow/error.h"

namespace penstock {

Stager::Stager(BatchRing& host, std::size_t reader, BatchRing& device_ring, Device& device)
    : host_(host),
      reader_(reader),
      device_ring_(device_ring),
      stream_(device.make_stream()),
      settled_(device.make_event()) {
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
  while (WriteLease to = device_ring_.acquire(stop)) {
    ReadLease from = host_.next(reader_, stop);
    if (!from) return;
    copy(std::move(from), std::move(to));
  }
}

void Stager::copy(ReadLease from, WriteLease to) {
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
