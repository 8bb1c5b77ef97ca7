// SPDX-License-Identifier: Apache-2.0
// The option of feeders that can normalise pixels on the host.
#pragma once

#include "dataflow/batch.h"
#include "dataflow/options.h"

namespace penstock {

inline constexpr OptionSpec kNormaliseOption{
    "normalise", "device",
    "where pixels are normalised: device (bytes are copied), or on the CPU to f32 or f16 (4 or 2 "
    "times as many bytes are copied)"};

/// Adjusts the batch spec to the option. Throws ConfigError if the value is unknown.
void normalise_batches(const Options& options, BatchSpec& batches);

/// Throws ConfigError if `batches` differ from what the option says. This happens in producers for
/// other processes, which send bytes.
void check_normalised(const Options& options, const BatchSpec& batches);

}  // namespace penstock
