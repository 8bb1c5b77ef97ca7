// SPDX-License-Identifier: Apache-2.0
// What the fuzzer and its deterministic twin do with the bytes of a checkpoint: take it apart, and
// look at every tensor. Throws std::logic_error where an answer contradicts itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
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

/// Two tensors of 6 and 2 elements, all zero.
inline std::vector<std::byte> good_checkpoint() {
  const std::vector<float> zeros(8);
  const std::span<const std::byte> data = std::as_bytes(std::span(zeros));
  const std::vector<SafeTensor> tensors = {{"logits.weight", {2, 3, 1, 1}, data.first(24)},
                                           {"logits.bias", {2}, data.last(8)}};
  const std::string header = safetensors_header({{"format", "penstock"},
                                                 {"version", "1"},
                                                 {"model", "tiny"},
                                                 {"optimizer", "sgd"},
                                                 {"height", "1"},
                                                 {"width", "1"},
                                                 {"channels", "3"},
                                                 {"classes", "2"},
                                                 {"step", "40"},
                                                 {"seed", "7"},
                                                 {"crc32", "190a55ad"}},
                                                tensors);
  std::vector<std::byte> bytes(header.size() + data.size());
  std::memcpy(bytes.data(), header.data(), header.size());
  return bytes;
}

}  // namespace penstock
