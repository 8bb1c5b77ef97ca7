// SPDX-License-Identifier: Apache-2.0
// zmq-consume:encoded=true: receives messages of image files and decodes them, as the feeder
// `queue` decodes the files of a folder.
#pragma once

#include <memory>

#include "dataflow/options.h"
#include "feeders/feeder.h"
#include "feeders/image_decoding.h"
#include "feeders/remote/wire/wire_batch.h"
#include "feeders/remote/zmq_consume_plan.h"

namespace penstock::remote {

inline constexpr OptionSpec kEncodedOptions[] = {
    {"encoded", "false",
     "messages hold image files, from `penstock serve --encoded`, which --feeder-threads decode "
     "with the options below"},
    {"held", "4",
     "messages that may wait for decoding, beside those in the socket; not with credit"},
};

/// All options of zmq-consume: general ones, those for image files, and those for decoding.
inline constexpr auto kAllConsumeOptions =
    joined_options(kConsumeOptions, kEncodedOptions, kDecoderOptions, kDecodePoolOptions);

/// Whether the run receives image files. Throws ConfigError if it does not, but has options for
/// them.
bool wants_image_files(const Options& options);

/// Reads the options for messages of image files. Throws ConfigError.
ConsumePlan read_encoded_plan(const Options& options, const BatchSpec& spec);

/// Returns a context for decoding. Bad images are skipped, like bad messages, unless the user says
/// otherwise.
FeederContext skipping_bad_images(const FeederContext& context);

/// Makes the feeder. Throws ConfigError.
std::unique_ptr<Feeder> make_encoded_consumer(const FeederContext& context);

/// Limit of messages with image files that may wait when the window begins; each counts as one
/// batch. Throws ConfigError.
std::int64_t encoded_reserve(const Options& options, const BatchSpec& spec);

/// Adjusts the batch spec to the options.
void shape_consumed_batches(const Options& options, BatchSpec& batches);

}  // namespace penstock::remote
