// SPDX-License-Identifier: Apache-2.0
// zmq-consume with credit (feeders/remote/framed_format.md): each producer may have a few batches
// in flight, and sends the next one when one of them is in a slot of the ring. A batch from the
// socket is copied once. A batch in shared memory is lent to the slot's readers, and its lease is
// returned when they are done. It is copied if the ring takes no loans or the device cannot read
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dataflow/machine/memory_limit.h"
#include "dataflow/options.h"
#include "feeders/feeder.h"
#include "feeders/remote/receive/zmq_socket.h"

namespace penstock::remote {

/// Makes the feeder. `context.options` are the options of zmq-consume; `credit`, above 0, is the
/// number of batches in flight. This function sets role and hwm of `socket`. Throws ConfigError.
std::unique_ptr<Feeder> make_credit_consume(const FeederContext& context, ZmqSocketOptions socket);

/// Upper bound on the batches of one producer that wait outside our rings: those in flight, and a
/// full ring in the producer. Assumes that the producer's --hwm equals ours.
std::int64_t credit_reserve(const Options& options);

/// Memory of this process that batches in flight take.
std::vector<MemoryNeed> credit_memory_needs(const Options& options, const BatchSpec& spec);

}  // namespace penstock::remote
