// SPDX-License-Identifier: Apache-2.0
// Communicators of NCCL. NCCL is opened when the first communicator is made, so a machine without
// it can still train on one GPU. They are non-blocking, so that they can be aborted at any moment.
#pragma once

#include <cstdint>
#include <memory>

#include "trainer/backends/gpu/communicator.h"

namespace penstock::gpu {

/// Both functions throw Unavailable if libnccl.so.2 is missing or older than the version that this
/// library was built with.
CommunicatorId make_nccl_id();
std::unique_ptr<Communicator> make_nccl_communicator(const CommunicatorId& id,
                                                     const CommunicatorPlace& place,
                                                     std::int32_t ordinal);

}  // namespace penstock::gpu
