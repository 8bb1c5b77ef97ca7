// SPDX-License-Identifier: Apache-2.0
// Shared memory of a BareProducer.
#pragma once

#include <unistd.h>

#include <cstring>

#include "dataflow/net/shared_memory/pool_listener.h"
#include "dataflow/net/shared_memory/shared_pool.h"
#include "tests/feeders/remote/credit_fixture.h"

namespace penstock {

/// A producer's pool with arbitrary contents, and leases of closed-form batches in it.
class BarePool {
 public:
  explicit BarePool(std::size_t slots = 4) : pool_(4096, slots), listener_(pool_.fd(), geteuid()) {}
  remote::FramedHello hello() const { return bare_hello(remote::boot_id(), listener_.name()); }
  remote::FramedLease fill(std::uint64_t index, std::size_t slot, std::uint64_t number) {
    const FrameBytes bytes = shared_bytes(BareProducer::payload_of(index));
    std::memcpy(pool_.slot(slot).data(), bytes.data(), bytes.size());
    return {.lease = number, .offset = 4096 * slot, .bytes = bytes.size()};
  }
  const net::SharedPool& pool() const { return pool_; }

 private:
  net::SharedPool pool_;
  net::PoolListener listener_;
};

}  // namespace penstock
