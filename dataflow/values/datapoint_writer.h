// SPDX-License-Identifier: Apache-2.0
// Writes the datapoints of tensorpack's serializers: lists of an image, a uint8 array of one
// dimension that holds an encoded image, and of its label.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace penstock::values {

/// The formats of tensorpack's `dumps`: pickles (tensorpack 0.9.9 and later), or MessagePack with
/// msgpack-numpy's arrays.
enum class Dumps : std::uint8_t { pickle, msgpack };

std::string dump_datapoint(Dumps dumps, std::span<const std::byte> image, std::int32_t label);

/// The list of the keys "00000000", "00000001", ... of LMDBSerializer, as bytes.
std::string dump_keys(Dumps dumps, std::uint64_t count);

// An array of objects [count, 2] in a pickle, as numpy.save writes one: what the first function
// returns, then each datapoint, then what the last function returns.
std::string begin_pickled_datapoints(std::uint64_t count);
std::string pickled_datapoint(std::span<const std::byte> image, std::int32_t label);
std::string end_pickled_datapoints();

}  // namespace penstock::values
