// SPDX-License-Identifier: Apache-2.0
// A folder of images, packed by Python, and what a source and a whole run read from it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "tests/support/jpeg_writer.h"
#include "tests/support/source_fixture.h"
#include "tests/support/text_files.h"
#include "tests/support/whole_run.h"

namespace penstock {

class PackedSet : public SourceFixture {
 protected:
  using Images = std::vector<std::pair<std::int32_t, std::vector<std::byte>>>;  // label, bytes

  /// Makes three classes of four images of several sizes.
  void SetUp() override {
    if (std::system("/usr/bin/python3 -c ''") != 0) GTEST_SKIP() << "no /usr/bin/python3";
    for (int label = 0; label < 3; ++label) {
      for (int i = 0; i < 4; ++i) {
        const auto seed = static_cast<std::uint64_t>(4 * label + i);
        std::vector<std::byte> image =
            encode_jpeg(make_test_image(24 + 7 * i, 20 + 5 * label, 3, seed));
        folder_.write("images/class" + std::to_string(label) + "/" + std::to_string(i) + ".JPEG",
                      image);
        images_.emplace_back(label, std::move(image));
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

  /// All samples of an epoch. A damaged sample has label -1 and the message.
  static Images all_of(Source& source) {
    Images images;
    for (Sample sample; source.next(sample);) {
      try {
        source.load(sample);
        const std::span<const std::byte> content = sample.content();
        images.emplace_back(sample.label, std::vector(content.begin(), content.end()));
      } catch (const DataError& error) {
        const auto* const text = reinterpret_cast<const std::byte*>(error.what());
        images.emplace_back(-1, std::vector(text, text + std::string_view(error.what()).size()));
      }
    }
    return images;
  }

  static std::string message_of(const Images::value_type& image) {
    if (image.first >= 0) return "no damage";
    return {reinterpret_cast<const char*>(image.second.data()), image.second.size()};
  }

  RunResult run(const std::string& source) const {
    return run_of("queue:source=" + source, plan_.directory);
  }

  Images images_;
};

}  // namespace penstock
