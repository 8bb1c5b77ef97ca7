// SPDX-License-Identifier: Apache-2.0
// The safetensors file format, for f32 tensors: eight bytes of header length (little endian), the
// header as JSON, and the elements of all tensors, row major, without gaps.
//   https://huggingface.co/docs/safetensors
// Bytes in, views out: nothing here opens files, and nothing in them is believed before it is
// checked.
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
  std::span<const std::byte> data;  ///< f32 elements, little endian; perhaps not aligned
};

struct SafeTensors {
  std::map<std::string, std::string> metadata;
  std::vector<SafeTensor> tensors;  ///< in the order of their data
  std::span<const std::byte> data;  ///< of all tensors
};

/// Views into `file`. Throws DataError for bytes that are no such file, or hold another type.
SafeTensors parse_safetensors(std::span<const std::byte> file);

/// What stands in front of the elements of `tensors`: length and header, a multiple of 8 bytes. The
/// sizes of the tensors' data are those of their shapes.
std::string safetensors_header(const std::map<std::string, std::string>& metadata,
                               std::span<const SafeTensor> tensors);

}  // namespace penstock
