// SPDX-License-Identifier: Apache-2.0
// A small image folder of random bytes, packed by Python (pack_images.py), and the samples that a
// source reads from it. Requires PENSTOCK_PYTHON and PENSTOCK_PACK_IMAGES, the paths of both.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "dataflow/random.h"
#include "tests/support/source_fixture.h"
#include "tests/support/text_files.h"

namespace penstock {

class PackedImagesTest : public SourceFixture {
 protected:
  static constexpr int kPerClass[] = {4, 7, 10};

  PackedImagesTest() {
    Random random(11);
    for (std::int32_t label = 0; label < 3; ++label) {
      for (int i = 0; i < kPerClass[label]; ++i) {
        std::vector<std::byte> bytes(1 + random.below(5000));
        random.fill(bytes);
        folder_.write("images/class" + std::to_string(label) + "/" + std::to_string(100 + i),
                      bytes);
        samples_.push_back({label, text_of(bytes)});
      }
    }
    plan_.directory = path("packed");
    plan_.threads = 2;
    plan_.classes = 3;
  }

  /// Packs into `packed` and replaces its old contents.
  void pack(const std::string& kind_and_options) {
    std::filesystem::remove_all(folder_ / "packed");
    const std::size_t space = std::min(kind_and_options.find(' '), kind_and_options.size());
    const std::string command = std::string(PENSTOCK_PYTHON) + " " + PENSTOCK_PACK_IMAGES + " " +
                                kind_and_options.substr(0, space) + " " + path("images") + " " +
                                path("packed") + kind_and_options.substr(space);
    if (std::system(command.c_str()) != 0) throw std::runtime_error("failed: " + command);
  }

  /// Applies `change` to `file` of `packed` and writes it again.
  template <typename Change>
  void edit(const std::string& file, const Change& change) const {
    std::string bytes = read_text(folder_ / "packed" / file);
    change(bytes);
    write_text(folder_ / "packed" / file, bytes);
  }

  std::vector<GivenImage> samples_;  ///< in the order of the shards
};

}  // namespace penstock
