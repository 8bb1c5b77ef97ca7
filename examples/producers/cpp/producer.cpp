// Run: producer ipc://feed 64, together with
//      penstock run --fake-location zmq-consume:endpoint=ipc://feed --batch-size 64
// SPDX-License-Identifier: Apache-2.0
// Feeds random images to Penstock through its library for producers. The CMakeLists.txt in this
// folder builds it outside Penstock's source tree.
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <random>
#include <vector>

#include "penstock_producer.hpp"

int main(int count, char** arguments) {
  if (count < 3) {
    std::cerr << "usage: producer ENDPOINT IMAGES_IN_A_BATCH [BATCHES]\n";
    return 2;
  }
  try {
    penstock::Producer producer(arguments[1]);
    penstock::BatchShape shape;
    shape.images = static_cast<std::uint32_t>(std::atoi(arguments[2]));
    shape.height = shape.width = 224;
    const long batches = count > 3 ? std::atol(arguments[3]) : 0;  // 0: no limit
    const std::size_t words = std::size_t{shape.images} * 224 * 224 * 3 / 8;
    std::mt19937_64 random(1);
    for (long i = 0; batches == 0 || i < batches; ++i) {
      producer.begin();
      const auto pixels = std::make_shared<std::vector<std::uint64_t>>(words);
      for (std::uint64_t& word : *pixels) word = random();
      std::vector<std::int32_t> labels(shape.images);
      for (std::int32_t& label : labels) label = static_cast<std::int32_t>(random() % 1000);
      producer.lend_pixels(pixels, pixels->data(), shape, labels.data());  // not copied
    }
    producer.end();
    const std::int64_t undelivered = producer.close();
    if (undelivered > 0) std::cerr << undelivered << " batches did not arrive\n";
    return undelivered > 0 ? 1 : 0;
  } catch (const std::exception& error) {
    std::cerr << "producer: " << error.what() << '\n';
    return 1;
  }
}
