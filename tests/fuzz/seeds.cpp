// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/seeds.h"

#include <cstdlib>
#include <fstream>
#include <string>

/// libFuzzer calls it first.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* const folder = std::getenv("PENSTOCK_FUZZ_SEEDS");
  if (folder == nullptr) return 0;
  int number = 0;
  for (const std::vector<std::byte>& seed : penstock::fuzz_seeds()) {
    std::ofstream file(std::string(folder) + "/" + std::to_string(number++), std::ios::binary);
    file.write(reinterpret_cast<const char*>(seed.data()),
               static_cast<std::streamsize>(seed.size()));
    file.close();
    if (!file) std::abort();
  }
  return 0;
}
