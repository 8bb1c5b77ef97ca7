// SPDX-License-Identifier: Apache-2.0
// Checkpoints: take one apart and look at every tensor.
#include "trainer/checkpoint.h"

#include <cstdint>

#include "tests/fuzz/target.h"
#include "trainer/safetensors.h"

namespace penstock::fuzz {

std::size_t checkpoint(std::span<const std::byte> input) try {
  const SafeTensors file = parse_safetensors(input);
  std::size_t data = 0;
  for (const SafeTensor& tensor : file.tensors) {
    std::uint64_t elements = 1;
    for (const std::int64_t dimension : tensor.shape) {
      elements *= static_cast<std::uint64_t>(dimension);
    }
    ensure(elements * sizeof(float) == tensor.data.size(), "a shape that is not that of its data");
    ensure(is_inside(tensor.data, input), "a view outside the file");
    data += tensor.data.size();
  }
  ensure(data == file.data.size(), "bytes that no tensor accounts for");
  const Checkpoint whole({input.begin(), input.end()});
  ensure(whole.info().step >= 0, "a step below 0");
  return 1;
} catch (const ConfigError&) {  // of another version
  return 0;
}

}  // namespace penstock::fuzz
