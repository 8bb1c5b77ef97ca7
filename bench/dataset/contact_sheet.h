// SPDX-License-Identifier: Apache-2.0
// A picture of a data set: a row of small images for each class, under its name.
#pragma once

#include <stop_token>
#include <string>

#include "bench/dataset/inspect_dataset.h"

namespace penstock {

/// Writes a PNG. Images that cannot be decoded are shown crossed out, and added to the odd files of
/// `inventory`. At most the first 100 classes are shown. Throws ConfigError when `path` cannot be
/// written, and leaves no half of it behind. After a requested stop images are missing.
void write_contact_sheet(DatasetInventory& inventory, const std::string& path,
                         const std::stop_token& stop);

}  // namespace penstock
