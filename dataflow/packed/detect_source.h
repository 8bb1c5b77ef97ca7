// SPDX-License-Identifier: Apache-2.0
// Which source reads the data at a place, told by names alone.
#pragma once

#include <string>

#include "dataflow/options.h"

namespace penstock {

/// "image-folder", "tfrecord", ...: the source for `place`, a folder, a file, or a list with braces
/// as list_shards() has it. Throws ConfigError where there is nothing, where nothing there is
/// known, and where files of several formats lie together.
std::string detect_source(const std::string& place);

/// The component that `text` names, with its options; "auto" stands for what `place` holds.
ComponentText source_text(const std::string& text, const std::string& place);

}  // namespace penstock
