// SPDX-License-Identifier: Apache-2.0
// zmq-consume by credit (feeders/framed_format.md): each producer may have a few batches under way,
// and sends the next one when one of them is in a slot of the ring. Over the socket each batch is
// copied once. What lies in shared memory is lent to the slot's readers, and its lease returned
// when they are done; it is copied where the ring takes no loans or its device cannot read it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dataflow/memory_limit.h"
#include "dataflow/options.h"
#include "feeders/feeder.h"
#include "feeders/zmq_socket.h"

namespace penstock {

/// `context.options` are zmq-consume's; `credit`, above 0, says how many batches. Of `socket`, role
/// and hwm are filled in here. Throws ConfigError.
std::unique_ptr<Feeder> make_credit_consume(const FeederContext& context, ZmqSocketOptions socket);

/// Batches of one producer that may lie ready outside our rings: those under way, and a full ring
/// of the producer, whose --hwm is taken to be ours.
std::int64_t credit_reserve(const Options& options);

/// What batches under way take of this process's memory.
std::vector<MemoryNeed> credit_memory_needs(const Options& options, const BatchSpec& spec);

}  // namespace penstock
