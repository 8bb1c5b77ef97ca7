// SPDX-License-Identifier: Apache-2.0
// Connects the GPUs that the host plays, as a vendor's library connects real ones: a call is under
// way on its rank's stream, and done there once the streams of all ranks have got to it. Sums are
// added in the order of ranks.
#pragma once

#include <memory>

#include "trainer/backends/gpu/communicator.h"
#include "trainer/backends/gpu/driver.h"

namespace penstock::gpu {

/// What the communicators of one id share.
class HostConnection;

/// `size`: ranks.
std::shared_ptr<HostConnection> make_host_connection(std::int32_t size);
/// `driver` is the rank's, and outlives the exchanges of all ranks.
std::unique_ptr<Communicator> make_host_communicator(std::shared_ptr<HostConnection> connection,
                                                     std::int32_t rank, Driver& driver);

}  // namespace penstock::gpu
