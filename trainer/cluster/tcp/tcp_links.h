// SPDX-License-Identifier: Apache-2.0
// Links between ranks over TCP: a connection between every two ranks that exchange, which carries
// nothing else.
#pragma once

#include <memory>
#include <string>

#include "trainer/cluster/processes.h"

namespace penstock::tcp {

/// Called by all processes together. `own_address`: this host's address on the way to rank 0, which
/// the others try first. The device of `exchange` and `clock` outlive the group. Throws
/// TimeoutError if a rank does not come. The links throw it if two ranks do not reach each other.
std::unique_ptr<CollectiveGroup> make_link_group(cluster::Processes& processes,
                                                 const std::string& own_address,
                                                 const cluster::Processes::Exchange& exchange,
                                                 Clock& clock);

}  // namespace penstock::tcp
