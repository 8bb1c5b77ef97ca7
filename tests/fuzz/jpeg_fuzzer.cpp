// SPDX-License-Identifier: Apache-2.0
// libFuzzer on the jpeg decoder. The first byte chooses the chain, the second either the file
// itself, or a good one that the rest changes: a place of two bytes and what is there instead.
#include "tests/fuzz/jpeg_target.h"
#include "tests/fuzz/seeds.h"

std::vector<std::vector<std::byte>> penstock::fuzz_seeds() {
  std::vector<std::vector<std::byte>> seeds = jpeg_corpus();
  const auto itself = static_cast<std::byte>(seeds.size());
  std::byte number{0};
  for (std::vector<std::byte>& seed : seeds) {
    seed.insert(seed.begin(), {number, itself, number});
    number = static_cast<std::byte>(std::to_integer<unsigned>(number) + 1);
  }
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static penstock::JpegChains chains;
  static const std::vector<std::vector<std::byte>> corpus = penstock::jpeg_corpus();
  if (size < 3) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(3);
  std::vector<std::byte> file(bytes.begin(), bytes.end());
  if (const std::size_t seed = data[1] % (corpus.size() + 1); seed < corpus.size()) {
    file = corpus[seed];
    for (std::size_t i = 0; i + 3 <= bytes.size(); i += 3) {
      const std::size_t at =
          std::to_integer<std::size_t>(bytes[i]) * 256 + std::to_integer<std::size_t>(bytes[i + 1]);
      file[at % file.size()] = bytes[i + 2];
    }
  }
  chains.try_one(data[0], file, data[2]);
  return 0;
}
