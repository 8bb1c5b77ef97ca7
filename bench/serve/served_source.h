// SPDX-License-Identifier: Apache-2.0
// Selects the data source of `penstock serve --encoded`, which sends image files without decoding.
#pragma once

#include <memory>

#include "dataflow/source.h"
#include "feeders/feeder.h"

namespace penstock::serve {

/// Returns the source that `feeder`, with the options in `context`, would decode. Throws
/// ConfigError, with what to use instead, for feeders and sources of pixels, and for decoding
/// options.
std::unique_ptr<Source> make_served_source(const FeederEntry& feeder, const FeederContext& context);

}  // namespace penstock::serve
