// SPDX-License-Identifier: Apache-2.0
// The ModelStore of ranks of several processes, which may have several threads each: a rank reads
// the models of its own process in memory and those of others over ZeroMQ, from a thread of theirs
// that answers with a copy of the newest one. Publishing waits for no other process.
//
// Between processes of one host models go through an abstract Unix socket, and only to who knows a
// token that the processes exchanged through their launcher. Between hosts they go over TCP,
// encrypted with keys that each run makes anew.
#pragma once

#include <memory>
#include <span>
#include <stop_token>

#include "dataflow/clock.h"
#include "dataflow/probe.h"
#include "trainer/model_store.h"
#include "trainer/process_models/host.h"
#include "trainer/processes.h"

namespace penstock {

/// References, and devices, outlive the store.
struct ProcessModels {
  Processes& processes;
  std::span<Device* const> devices;  ///< of this process's ranks, as many in each process
  Clock& clock;
  Probe& probe;          ///< its counter model_requests_refused: of strangers, or malformed
  Nanoseconds patience;  ///< with which a rank waits for another one's model
  /// Requests to either let who reads or publishes leave with an Error.
  std::stop_token stopping, abandon;
  HostFacts host = read_host_facts();
};

/// Called by all processes in the same order. It answers until it is destroyed, which has to be
/// behind the last read of any. Throws Unavailable where this program was built without ZeroMQ, or
/// processes are on several hosts and libzmq has no CURVE; TimeoutError.
std::unique_ptr<ModelStore> make_process_models(const ProcessModels& parts);

}  // namespace penstock
