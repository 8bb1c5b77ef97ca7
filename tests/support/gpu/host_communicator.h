// SPDX-License-Identifier: Apache-2.0
// Connects the GPUs that the host emulates, as a vendor's library connects real ones. A call is
// enqueued on its rank's stream. It completes there when the streams of all ranks have reached it.
// Sums are added in the order of ranks.
#pragma once

#include <memory>

#include "trainer/backends/gpu/driver.h"

namespace penstock::gpu {

/// The state that the communicators of one id share.
class HostConnection;

/// `size` is the number of ranks.
std::shared_ptr<HostConnection> make_host_connection(std::int32_t size);
/// `driver` is the rank's driver and must outlive the exchanges of all ranks.
std::unique_ptr<Communicator> make_host_communicator(std::shared_ptr<HostConnection> connection,
                                                     std::int32_t rank, Driver& driver);

}  // namespace penstock::gpu
