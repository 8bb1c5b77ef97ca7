// SPDX-License-Identifier: Apache-2.0
// What the fuzzer and its deterministic twin do with the frames of a message of any format: find
// the format, take the batch out, copy it. Throws std::logic_error where a batch is none.
//
// The input's first two bytes divide the rest into frames: bits 0 to 1 say how many there are,
// bits 2 to 15 how long the first is; each other takes three quarters of what is left, the last one
// all.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/wire/batch_message.h"
#include "tests/fuzz/zmq_op_target.h"
#include "tests/support/pickles.h"

namespace penstock {

inline std::vector<std::span<const std::byte>> divide_into_frames(
    std::span<const std::byte> bytes) {
  if (bytes.size() < 2) return {bytes};
  const unsigned word = std::to_integer<unsigned>(bytes[0]) | std::to_integer<unsigned>(bytes[1])
                                                                  << 8;
  bytes = bytes.subspan(2);
  const std::size_t count = (word & 3) + 1;
  std::vector<std::span<const std::byte>> frames;
  while (frames.size() + 1 < count) {
    const std::size_t length =
        frames.empty() ? std::min<std::size_t>(word >> 2, bytes.size()) : bytes.size() * 3 / 4;
    frames.push_back(bytes.first(length));
    bytes = bytes.subspan(length);
  }
  frames.push_back(bytes);
  return frames;
}

/// Whether the message was a batch of kFuzzSpec.
inline bool try_batch_message(std::span<const std::byte> bytes) {
  const std::vector<std::span<const std::byte>> frames = divide_into_frames(bytes);
  BatchMessageReader reader(kFuzzSpec);
  try {
    copy_fuzzed_batch(reader.read(detect_message_format(frames), frames));
    return true;
  } catch (const DataError&) {
    return false;
  }
}

/// One frame, or a first frame and two others, of three quarters and one quarter of `others`.
inline std::vector<std::byte> as_fuzz_input(std::span<const std::byte> first,
                                            std::span<const std::byte> others = {}) {
  const unsigned word = others.empty() ? 0 : 2U | static_cast<unsigned>(first.size()) << 2;
  std::vector<std::byte> input(2 + first.size() + others.size());
  input[0] = static_cast<std::byte>(word & 0xff);
  input[1] = static_cast<std::byte>(word >> 8);
  std::copy(others.begin(), others.end(), std::copy(first.begin(), first.end(), &input[2]));
  return input;
}

/// Two images of kFuzzSpec as msgpack-numpy writes them: 12 bytes of pixels, labels 3 and 7.
inline std::vector<std::byte> msgpack_of_batch() {
  return bytes_of_hex(
      "92"
      "85c4026e64c3c40474797065a37c7531c4046b696e64c400c40573686170659402020301"
      "c40464617461c40c000102030405060708090a0b"
      "85c4026e64c3c40474797065a33c6934c4046b696e64c400c40573686170659102"
      "c40464617461c4080300000007000000");
}

/// A good batch of each format, and a pickle of other shapes.
inline std::vector<std::vector<std::byte>> batch_message_corpus() {
  constexpr std::string_view kHeader =
      R"([{"dtype":"uint8","shape":[2,2,3,1]},{"dtype":"<u2","shape":[2]}])";
  const std::vector<std::byte> arrays(12 + 4);
  std::vector<std::vector<std::byte>> corpus;
  corpus.push_back(as_fuzz_input(zmq_op_corpus()[0]));
  corpus.push_back(as_fuzz_input(msgpack_of_batch()));
  corpus.push_back(as_fuzz_input(pickle_of_arrays()));
  corpus.push_back(as_fuzz_input(std::as_bytes(std::span(kHeader)), arrays));
  return corpus;
}

}  // namespace penstock
