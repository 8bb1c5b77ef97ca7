// SPDX-License-Identifier: Apache-2.0
// A folder of data, the plan to read it, and the sources that a text names.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/source.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thrown_by.h"

namespace penstock {

/// A sample as a source gives it. A damaged one has the label -1 and the message as its content.
struct GivenImage {
  std::int32_t label = 0;
  std::string content{};
  PixelLayout layout{};
  bool operator==(const GivenImage&) const = default;
};
struct GivenSample : GivenImage {
  std::uint64_t index = 0, epoch = 0, offset = 0;
  std::string file{};
  bool operator==(const GivenSample&) const = default;
};

class SourceFixture : public testing::Test {
 protected:
  /// One epoch of the folder, in its order. `source` is what open() and refusal() take by default.
  explicit SourceFixture(std::string source = {}) : source_(std::move(source)) {
    plan_.directory = folder_.path().string();
    plan_.epochs = 1;
    plan_.shuffle = false;
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  /// `text` is as queue's option `source`: "tfrecord:label_base=0".
  std::unique_ptr<Source> open(std::string_view text = {}) const {
    const ComponentText parts = parse_component(text.empty() ? source_ : text);
    const SourceEntry& entry = find_entry(source_table(), parts.name);
    return entry.make(plan_, Options(entry.name, entry.options, parts));
  }
  std::string refusal(std::string_view text = {}) const {
    return thrown_by<ConfigError>([&] { open(text); });
  }
  void expect_refusal(std::string_view problem, std::string_view text = {}) const {
    EXPECT_TRUE(says(refusal(text), problem));
  }

  /// Reads to the end.
  static std::vector<GivenSample> all_of(Source& source) {
    std::vector<GivenSample> all;
    for (Sample sample;;) {
      GivenSample given{{.label = -1}};
      try {
        if (!source.next(sample)) return all;
        source.load(sample);
        given = {{sample.label, text_of(sample.content()), sample.layout}};
        given.offset = sample.offset;
        given.file = sample.file;
      } catch (const DataError& error) {
        given.content = error.what();
      }
      given.index = sample.index;
      given.epoch = sample.epoch;
      all.push_back(std::move(given));
    }
  }

  /// The images that can be read. `errors` receives the messages about the others.
  static std::vector<GivenImage> read(Source& source, std::vector<std::string>* errors = nullptr) {
    std::vector<GivenImage> read;
    for (const GivenSample& given : all_of(source)) {
      if (given.label >= 0) {
        read.push_back(given);
      } else if (errors != nullptr) {
        errors->push_back(given.content);
      } else {
        throw DataError(given.content);
      }
    }
    return read;
  }

  static std::string text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  TempFolder folder_;
  DataPlan plan_;

 private:
  const std::string source_;
};

}  // namespace penstock
