// SPDX-License-Identifier: Apache-2.0
// `penstock serve --encoded`: which data sets can be sent as image files, and the source of them.
#pragma once

#include <memory>

#include "dataflow/source.h"
#include "feeders/feeder.h"

namespace penstock {

/// The source that `feeder`, with the options in `context`, would decode. Throws ConfigError, with
/// what to use instead, for feeders and sources of pixels, and for options that are about decoding.
std::unique_ptr<Source> make_served_source(const FeederEntry& feeder, const FeederContext& context);

}  // namespace penstock
