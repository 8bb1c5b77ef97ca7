// SPDX-License-Identifier: Apache-2.0
// The workers of a run with parameter servers, as its processes: what they tell each other goes
// through server 0.
#pragma once

#include <memory>

#include "trainer/processes.h"
#include "trainer/servers/connection.h"

namespace penstock {

/// Its ranks are the workers' tasks; those at the same host of --worker-hosts share it. Their
/// replicas have no exchange among each other, so that make_group is not to be called. `connection`
/// outlives it.
std::unique_ptr<Processes> make_worker_processes(ServerConnection& connection);

}  // namespace penstock
