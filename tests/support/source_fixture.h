// SPDX-License-Identifier: Apache-2.0
// A folder of data, the plan to read it, and the sources that a text names.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "dataflow/error.h"
#include "dataflow/source.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thrown_by.h"

namespace penstock {

class SourceFixture : public testing::Test {
 protected:
  /// One epoch of the folder, in its order.
  SourceFixture() {
    plan_.directory = folder_.path().string();
    plan_.epochs = 1;
    plan_.shuffle = false;
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  /// `text` is as queue's option `source`: "tfrecord:label_base=0".
  std::unique_ptr<Source> open(std::string_view text) const {
    const ComponentText parts = parse_component(text);
    const SourceEntry& entry = find_entry(source_table(), parts.name);
    return entry.make(plan_, Options(entry.name, entry.options, parts));
  }
  std::string refusal(std::string_view text) const {
    return thrown_by<ConfigError>([&] { open(text); });
  }

  static std::string text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  TempFolder folder_;
  DataPlan plan_;
};

}  // namespace penstock
