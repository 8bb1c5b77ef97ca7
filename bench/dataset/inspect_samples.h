// SPDX-License-Identifier: Apache-2.0
// Takes an inventory of the samples of a Source, one after the other.
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

namespace penstock::dataset {

constexpr const char* kNoEndMarker = "has no end marker: cut short, or with something behind it";

/// JPEGs end in the marker FF D9; truncated files do not.
bool has_end_marker(std::span<const std::byte> bytes);

/// Adds one readable JPEG of `bytes` bytes to the counts.
void count_jpeg(DatasetInventory& inventory, const JpegHeader& header, std::int64_t bytes);

/// Fills in all of `inventory` except `of`, in one pass over the samples. Throws ConfigError if
/// there is no such data set or no usable sample.
void inspect_samples(DatasetInventory& inventory, const std::stop_token& stop);

/// Returns pictures of the samples with these indices, at most width x height. Samples that cannot
/// be decoded have no picture and are added to the odd ones of `inventory`. After a stop request,
/// pictures are missing. Makes a second pass over the set, up to the last requested sample.
std::map<std::uint64_t, Photo> draw_samples(DatasetInventory& inventory,
                                            std::set<std::uint64_t> indices, std::int32_t width,
                                            std::int32_t height, const std::stop_token& stop);

}  // namespace penstock::dataset
