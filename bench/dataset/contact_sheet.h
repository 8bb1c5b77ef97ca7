// SPDX-License-Identifier: Apache-2.0
// Draws a contact sheet of a data set: a row of small images for each class, under its name.
#pragma once

#include <stop_token>
#include <string>

#include "bench/dataset/inspect_dataset.h"

namespace penstock::dataset {

/// Writes a PNG. Images that cannot be decoded are crossed out and added to the odd files of
/// `inventory`. Shows at most the first 100 classes. Throws ConfigError if `path` cannot be
/// written, and then leaves no partial file. After a stop request, images are missing.
void write_contact_sheet(DatasetInventory& inventory, const std::string& path,
                         const std::stop_token& stop);

}  // namespace penstock::dataset
