// SPDX-License-Identifier: Apache-2.0
// Runs a parameter server as a process: a socket and a Server, until the run is over.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "dataflow/clock.h"
#include "dataflow/net/curve_setup.h"
#include "trainer/cluster/servers/cluster.h"
#include "trainer/cluster/servers/server.h"

namespace penstock::cluster {

struct ServeArguments {
  Cluster cluster;
  std::int32_t task = 0;
  bool insecure = false;    ///< may listen on addresses that other machines can reach
  net::CurveFiles curve{};  ///< server keys, or none
  int io_threads = 1;       ///< libzmq's I/O threads
  ServerPatience patience{};
};

/// The outcome of a server.
struct Served {
  std::string failure;        ///< why the run did not complete; empty: it completed
  std::int64_t rejected = 0;  ///< messages for other receivers, or invalid ones
  std::int64_t refused = 0;   ///< connection attempts without the right key
  bool stopped = false;       ///< by a request to `stop`
};

/// Listens at its address in the cluster until all workers have said goodbye, one is lost, or
/// `stop` is requested. `say` gets progress messages. Throws ConfigError if it cannot listen,
/// Unavailable if this program was built without ZeroMQ.
Served serve_parameters(const ServeArguments& arguments, Clock& clock,
                        const std::function<void(const std::string&)>& say, std::stop_token stop);

}  // namespace penstock::cluster
