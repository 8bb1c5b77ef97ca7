// SPDX-License-Identifier: Apache-2.0
// Presents the workers of a run with parameter servers as its Processes. Their texts go through
// server 0.
#pragma once

#include <memory>

#include "trainer/cluster/processes.h"
#include "trainer/cluster/servers/connection.h"

namespace penstock::cluster {

/// The ranks are the workers' tasks. Tasks with the same host in --worker-hosts are on the same
/// host. The replicas have no exchange among each other, so make_group must not be called.
/// `connection` outlives it.
std::unique_ptr<Processes> make_worker_processes(ServerConnection& connection);

}  // namespace penstock::cluster
