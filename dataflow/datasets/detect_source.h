// SPDX-License-Identifier: Apache-2.0
// Finds the source that can read the data at a place, from file names. First bytes decide for names
// that show none, and refuse formats that no source reads.
#pragma once

#include <string>

#include "dataflow/options.h"

namespace penstock::datasets {

/// Which format a file's first bytes show: "a Parquet file"; empty: none that is known.
std::string format_of(const std::string& path);

/// The source for `place`: "image-folder", "tfrecord", .... `place` is a folder, a file, or a list
/// with braces as for list_shards(). Throws ConfigError if it does not exist, if its format is
/// unknown, or if it mixes files of several formats.
std::string detect_source(const std::string& place);

/// The component that `text` names, with its options. "auto" selects the source by what `place`
/// holds.
ComponentText source_text(const std::string& text, const std::string& place);

}  // namespace penstock::datasets
