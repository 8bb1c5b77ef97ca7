// SPDX-License-Identifier: Apache-2.0
// A parameter server as a process: a socket, a Server behind it, until nobody needs it any more.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "dataflow/clock.h"
#include "dataflow/curve_setup.h"
#include "trainer/servers/cluster.h"
#include "trainer/servers/server.h"

namespace penstock {

struct ServeWish {
  Cluster cluster;
  std::int32_t task = 0;
  bool insecure = false;  ///< may listen where other machines can reach it
  CurveFiles curve{};     ///< a server's keys, or none
  int io_threads = 1;     ///< of libzmq
  ServerPatience patience{};
};

/// How it ended.
struct Served {
  std::string failure;        ///< why the run did not come to its end; empty: it did
  std::int64_t rejected = 0;  ///< messages that were not for it, or made no sense
  std::int64_t refused = 0;   ///< tries to come in without the right key
  bool stopped = false;       ///< by `stop`
};

/// Listens at its own address of the cluster until all workers have said goodbye, one is lost, or
/// `stop` is requested. `say` gets sentences on the way. Throws ConfigError where it cannot listen,
/// Unavailable where this program was built without ZeroMQ.
Served serve_parameters(const ServeWish& wish, Clock& clock,
                        const std::function<void(const std::string&)>& say, std::stop_token stop);

}  // namespace penstock
