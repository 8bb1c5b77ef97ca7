// SPDX-License-Identifier: Apache-2.0
// A picture of a data set: a row of small images for each class, under its name.
#pragma once

#include <string>

#include "bench/dataset/inspect_dataset.h"

namespace penstock {

/// Writes a PNG. Images that cannot be decoded are shown crossed out, and added to the odd files of
/// `inventory`. At most the first 100 classes are shown. Throws ConfigError when `path` cannot be
/// written, and leaves no half of it behind.
void write_contact_sheet(DatasetInventory& inventory, const std::string& path);

}  // namespace penstock
