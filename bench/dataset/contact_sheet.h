// SPDX-License-Identifier: Apache-2.0
// Draws contact sheets: rows of small images under their titles. That of a data set has a row for
// each class.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "bench/dataset/inspect_dataset.h"
#include "bench/dataset/jpeg_file.h"

namespace penstock::dataset {

/// Most pictures in a row.
inline constexpr std::size_t kSheetColumns = 8;

/// A missing picture is crossed out.
struct SheetRow {
  std::string title;
  std::vector<std::optional<Photo>> pictures;
};

/// Writes a PNG of the rows that `row` returns for 0, 1, ... Throws ConfigError if `path` cannot be
/// written, and then leaves no partial file.
void write_sheet(const std::string& path, std::size_t rows,
                 const std::function<SheetRow(std::size_t)>& row);

/// Writes a PNG of a data set. Images that cannot be decoded are crossed out and added to the odd
/// files of `inventory`. Shows at most the first 100 classes. After a stop request, images are
/// missing.
void write_contact_sheet(DatasetInventory& inventory, const std::string& path,
                         const std::stop_token& stop);

}  // namespace penstock::dataset
