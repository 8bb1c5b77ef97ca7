// SPDX-License-Identifier: Apache-2.0
// What those share that read images of data sets: the options that say which and how, and the
// Source made of them.
#pragma once

#include <memory>

#include "dataflow/options.h"
#include "dataflow/source.h"
#include "feeders/feeder.h"

namespace penstock {

inline constexpr OptionSpec kSourceOptions[] = {
    {"source", "auto",
     "where images come from, such as memory:limit=512MiB; auto: by the names in --data-dir; with "
     "decode=raw [memory]"},
    {"io", "",
     "how files are read: pread, direct (O_DIRECT, past the page cache) or uring (io_uring); "
     "default: image files by read, packed ones as mapped memory"},
    {"readahead", "0",
     "samples that threads of their own (as many, at most 32) read before they are asked for; for "
     "storage that is slow to answer"},
    {"repeat_cached_sample", "false",
     "read the first sample alone and repeat it from memory: decoding without storage"},
};

/// The source that the options of the feeder `queue` name, read as they say. Throws ConfigError.
std::unique_ptr<Source> make_image_source(const FeederContext& context);

}  // namespace penstock
