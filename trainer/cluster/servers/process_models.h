// SPDX-License-Identifier: Apache-2.0
// The ModelStore for ranks of several processes, each with one or more threads. A rank reads models
// of its own process in memory and models of other processes over ZeroMQ, where a thread of that
// process answers with a copy of the newest one. Publishing waits for no other process.
//
// Between processes of one host, models go through an abstract Unix socket and need a token that
// the processes exchanged through their launcher. Between hosts they go over TCP, encrypted with
// keys that are new in each run.
#pragma once

#include <memory>
#include <span>
#include <stop_token>

#include "dataflow/clock.h"
#include "dataflow/probe.h"
#include "trainer/cluster/host.h"
#include "trainer/cluster/model_store.h"
#include "trainer/cluster/processes.h"

namespace penstock::cluster {

/// The references and devices outlive the store.
struct ProcessModels {
  Processes& processes;
  std::span<Device* const> devices;  ///< of this process's ranks; equally many in each process
  Clock& clock;
  Probe& probe;          ///< counter model_requests_refused: foreign or malformed requests
  Nanoseconds patience;  ///< timeout of reading another rank's model
  /// On a request to either, a rank that reads or publishes leaves with an Error.
  std::stop_token stopping, abandon;
  HostFacts host = read_host_facts();
};

/// Called by all processes in the same order. It answers requests until it is destroyed, which must
/// be after the last read of any process. Throws Unavailable if this program was built without
/// ZeroMQ, or if processes are on several hosts and libzmq lacks CURVE. Throws TimeoutError.
std::unique_ptr<ModelStore> make_process_models(const ProcessModels& parts);

}  // namespace penstock::cluster
