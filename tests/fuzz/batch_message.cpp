// SPDX-License-Identifier: Apache-2.0
// Messages of any format: find the format, take the batch out, copy it.
//
// The input's first two bytes divide the rest into frames: bits 0 to 1 are the number of frames
// less one, bits 2 to 15 the length of the first frame. Each other frame takes three quarters of
// what is left, the last one all.
#include "feeders/remote/wire/batch_message.h"

#include <algorithm>

#include "tests/fuzz/copy_batch.h"

namespace penstock::fuzz {
namespace {

std::vector<std::span<const std::byte>> divide_into_frames(std::span<const std::byte> bytes) {
  if (bytes.size() < 2) return {bytes};
  const unsigned word = std::to_integer<unsigned>(bytes[0]) | std::to_integer<unsigned>(bytes[1])
                                                                  << 8;
  bytes = bytes.subspan(2);
  std::vector<std::span<const std::byte>> frames;
  for (unsigned others = word & 3; others > 0; --others) {
    const std::size_t length =
        frames.empty() ? std::min<std::size_t>(word >> 2, bytes.size()) : bytes.size() * 3 / 4;
    frames.push_back(bytes.first(length));
    bytes = bytes.subspan(length);
  }
  frames.push_back(bytes);
  return frames;
}

}  // namespace

std::size_t batch_message(std::span<const std::byte> input) {
  const std::vector<std::span<const std::byte>> frames = divide_into_frames(input);
  remote::BatchMessageReader reader(kSpec);
  copy_batch_checked(reader.read(remote::detect_message_format(frames), frames));
  return 1;
}

}  // namespace penstock::fuzz
