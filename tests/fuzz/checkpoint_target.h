// SPDX-License-Identifier: Apache-2.0
// What the fuzzer and its deterministic twin do with the bytes of a checkpoint: take it apart, and
// look at every tensor. Throws std::logic_error where an answer contradicts itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "dataflow/error.h"
#include "trainer/checkpoint.h"
#include "trainer/safetensors.h"

namespace penstock {

/// Whether the bytes were a whole checkpoint.
inline bool try_checkpoint(std::span<const std::byte> bytes) {
  try {
    const SafeTensors file = parse_safetensors(bytes);
    std::size_t data = 0;
    for (const SafeTensor& tensor : file.tensors) {
      std::uint64_t elements = 1;
      for (const std::int64_t dimension : tensor.shape) {
        elements *= static_cast<std::uint64_t>(dimension);
      }
      if (elements * sizeof(float) != tensor.data.size()) {
        throw std::logic_error("a shape that is not that of its data");
      }
      if (!tensor.data.empty() &&
          (tensor.data.data() < bytes.data() ||
           tensor.data.data() + tensor.data.size() > bytes.data() + bytes.size())) {
        throw std::logic_error("a view outside the file");
      }
      data += tensor.data.size();
    }
    if (data != file.data.size()) throw std::logic_error("bytes that no tensor accounts for");
    const Checkpoint checkpoint({bytes.begin(), bytes.end()});
    if (checkpoint.info().step < 0) throw std::logic_error("a step below 0");
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace penstock
