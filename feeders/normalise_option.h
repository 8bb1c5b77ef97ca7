// SPDX-License-Identifier: Apache-2.0
// The option of feeders whose batches may leave the host normalised.
#pragma once

#include "dataflow/batch.h"
#include "dataflow/options.h"

namespace penstock {

inline constexpr OptionSpec kNormaliseOption{
    "normalise", "device",
    "where pixels are normalised: device (bytes are copied), or on the CPU to f32 or f16 (4 or 2 "
    "times as many bytes are copied)"};

/// What the option makes of batches of bytes. Throws ConfigError for other words.
void normalise_batches(const Options& options, BatchSpec& batches);

/// Throws ConfigError where `batches` are not what the option says: of producers for others, whose
/// format is bytes.
void check_normalised(const Options& options, const BatchSpec& batches);

}  // namespace penstock
