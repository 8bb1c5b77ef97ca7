// SPDX-License-Identifier: Apache-2.0
// zmq-consume:encoded=true: messages of image files, which this side decodes, as the feeder `queue`
// does those of a folder.
#pragma once

#include <memory>

#include "dataflow/options.h"
#include "dataflow/wire/wire_batch.h"
#include "feeders/feeder.h"
#include "feeders/image_decoding.h"
#include "feeders/zmq_consume_plan.h"

namespace penstock {

inline constexpr OptionSpec kEncodedOptions[] = {
    {"encoded", "false",
     "messages hold image files, from `penstock serve --encoded`, which --feeder-threads decode "
     "with the options below"},
    {"held", "4",
     "messages that may wait for decoding, beside those in the socket; not with credit"},
};

/// All options of zmq-consume: of every message, of those with image files, and of decoding them.
inline constexpr auto kAllConsumeOptions =
    joined_options(kConsumeOptions, kEncodedOptions, kDecoderOptions, kDecodePoolOptions);

/// Does the run want image files? Throws ConfigError for options that are about them where it does
/// not.
bool wants_image_files(const Options& options);

/// Throws ConfigError.
ConsumePlan read_encoded_plan(const Options& options, const BatchSpec& spec);

/// Bad messages are skipped unless the user says otherwise, and so are the images in them: a
/// context for those who decode.
FeederContext skipping_bad_images(const FeederContext& context);

/// Throws ConfigError.
std::unique_ptr<Feeder> make_encoded_consumer(const FeederContext& context);

/// Messages of image files that may lie ready when the window begins, a batch each. Throws
/// ConfigError.
std::int64_t encoded_reserve(const Options& options, const BatchSpec& spec);

/// Makes of batches of bytes those that options ask for.
void shape_consumed_batches(const Options& options, BatchSpec& batches);

}  // namespace penstock
