// SPDX-License-Identifier: Apache-2.0
// Reads and writes the safetensors file format, for f32 tensors. A file has eight bytes of header
// length (little endian), the header as JSON, and the elements of all tensors, row major, without
// gaps.
//   https://huggingface.co/docs/safetensors
// The functions take bytes and return views; they open no files. They check everything before they
// use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace penstock {

struct SafeTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;  ///< f32 elements, little endian; may be unaligned
};

struct SafeTensors {
  std::map<std::string, std::string> metadata;
  std::vector<SafeTensor> tensors;  ///< in the order of their data
  std::span<const std::byte> data;  ///< data of all tensors
};

/// Returns views into `file`. Throws DataError if the bytes are not such a file or hold another
/// type.
SafeTensors parse_safetensors(std::span<const std::byte> file);

/// Returns the bytes in front of the elements of `tensors`: length and header, a multiple of 8
/// bytes. The size of each tensor's data matches its shape.
std::string safetensors_header(const std::map<std::string, std::string>& metadata,
                               std::span<const SafeTensor> tensors);

}  // namespace penstock
