// SPDX-License-Identifier: Apache-2.0
// A folder of images, packed by Python, and what a source and a whole run read from it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "dataflow/error.h"
#include "tests/support/jpeg_writer.h"
#include "tests/support/source_fixture.h"
#include "tests/support/text_files.h"
#include "tests/support/whole_run.h"

namespace penstock {

class PackedSet : public SourceFixture {
 protected:
  using SourceFixture::SourceFixture;

  /// Makes three classes of four images of several sizes.
  void SetUp() override {
    if (std::system("/usr/bin/python3 -c ''") != 0) GTEST_SKIP() << "no /usr/bin/python3";
    for (int label = 0; label < 3; ++label) {
      for (int i = 0; i < 4; ++i) {
        const auto seed = static_cast<std::uint64_t>(4 * label + i);
        const std::vector<std::byte> image =
            encode_jpeg(make_test_image(24 + 7 * i, 20 + 5 * label, 3, seed));
        folder_.write("images/class" + std::to_string(label) + "/" + std::to_string(i) + ".JPEG",
                      image);
        images_.push_back({label, text_of(image)});
      }
    }
    plan_.classes = 12;
  }

  /// Packs the folder at `name` of the temporary folder.
  void pack(const std::string& format, const std::string& name, const std::string& options = {}) {
    const std::string command = "/usr/bin/python3 '" PENSTOCK_PACKED_WRITERS "' " + format + " '" +
                                path("images") + "' '" + path(name) + "' " + options;
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    plan_.directory = path(name);
  }

  static std::vector<GivenImage> images_of(Source& source) {
    const std::vector<GivenSample> all = all_of(source);
    return {all.begin(), all.end()};
  }
  static std::string message_of(const GivenImage& image) {
    return image.label >= 0 ? "no damage" : image.content;
  }

  RunResult run(const std::string& source) const {
    return run_of("queue:source=" + source, plan_.directory);
  }

  std::vector<GivenImage> images_;
};

}  // namespace penstock
