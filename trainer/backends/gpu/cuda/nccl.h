// SPDX-License-Identifier: Apache-2.0
// Communicators of NCCL, which is opened when the first one is asked for: a machine without it
// still trains on one GPU. They do not block, so that they can be aborted at any moment.
#pragma once

#include <cstdint>
#include <memory>

#include "trainer/backends/gpu/communicator.h"

namespace penstock::gpu {

/// Both throw Unavailable where there is no libnccl.so.2, or one that is older than what this was
/// built with.
CommunicatorId make_nccl_id();
std::unique_ptr<Communicator> make_nccl_communicator(const CommunicatorId& id,
                                                     const CommunicatorPlace& place,
                                                     std::int32_t ordinal);

}  // namespace penstock::gpu
