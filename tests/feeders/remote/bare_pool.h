// SPDX-License-Identifier: Apache-2.0
// Memory that a BareProducer shares.
#pragma once

#include <unistd.h>

#include <cstring>

#include "dataflow/shared_memory/pool_listener.h"
#include "dataflow/shared_memory/shared_pool.h"
#include "tests/feeders/credit_fixture.h"

namespace penstock {

/// A producer's pool, with whatever in it, and its lease of the closed-form batch `index`.
class BarePool {
 public:
  explicit BarePool(std::size_t slots = 4) : pool_(4096, slots), listener_(pool_.fd(), geteuid()) {}
  FramedHello hello() const { return bare_hello(boot_id(), listener_.name()); }
  FramedLease fill(std::uint64_t index, std::size_t slot, std::uint64_t number) {
    const FrameBytes bytes = shared_bytes(BareProducer::payload_of(index));
    std::memcpy(pool_.slot(slot).data(), bytes.data(), bytes.size());
    return {.lease = number, .offset = 4096 * slot, .bytes = bytes.size()};
  }
  const SharedPool& pool() const { return pool_; }

 private:
  SharedPool pool_;
  PoolListener listener_;
};

}  // namespace penstock
