// SPDX-License-Identifier: Apache-2.0
// The source of the feeders that read images of data sets: its options, and the Source built from
// them.
#pragma once

#include <memory>

#include "dataflow/options.h"
#include "dataflow/source.h"
#include "feeders/feeder.h"

namespace penstock {

inline constexpr OptionSpec kSourceOptions[] = {
    {"source", "auto",
     "data-set format, such as memory:limit=512MiB; auto: by file names in --data-dir; with "
     "decode=raw: memory"},
    {"io", "",
     "how to read files: pread, direct (O_DIRECT, bypasses the page cache) or uring (io_uring); "
     "default: read() for image files, mmap for packed ones"},
    {"readahead", "0",
     "samples to read ahead, in as many threads (at most 32), for storage with high latency"},
    {"repeat_cached_sample", "false",
     "repeat the first sample from memory: measures decoding without storage"},
    {"coverage", "",
     "file for the samples seen in each epoch, of several ranks FILE.RANK, for `penstock dataset "
     "coverage`; default: none"},
};

/// Creates the source that the options of the feeder `queue` name. Throws ConfigError.
std::unique_ptr<Source> make_image_source(const FeederContext& context);

}  // namespace penstock
