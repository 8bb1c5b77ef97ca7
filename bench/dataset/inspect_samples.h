// SPDX-License-Identifier: Apache-2.0
// The parts of an inventory that come from samples of a Source, one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <stop_token>

#include "bench/dataset/inspect_dataset.h"
#include "bench/dataset/jpeg_file.h"
#include "bench/dataset/photo.h"

namespace penstock {

constexpr const char* kNoEndMarker = "has no end marker: cut short, or with something behind it";

/// JPEGs end in the marker FF D9; one that was cut short does not.
bool has_end_marker(std::span<const std::byte> bytes);

/// Adds one readable JPEG of so many bytes to what is counted of all.
void count_jpeg(DatasetInventory& inventory, const JpegHeader& header, std::int64_t bytes);

/// Fills in all of `inventory` but what it is of: one pass over the set's samples. Throws
/// ConfigError where there is no such data set, or no sample of it can be used.
void inspect_samples(DatasetInventory& inventory, const std::stop_token& stop);

/// Pictures of the samples with these indices, none larger than width x height; none for samples
/// that cannot be decoded, which are added to the odd ones of `inventory`, and none that come after
/// a requested stop. A second pass over the set, as far as the last of them.
std::map<std::uint64_t, Photo> draw_samples(DatasetInventory& inventory,
                                            std::set<std::uint64_t> indices, std::int32_t width,
                                            std::int32_t height, const std::stop_token& stop);

}  // namespace penstock
