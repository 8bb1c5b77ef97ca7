// SPDX-License-Identifier: Apache-2.0
// What a feeder of the table needs around it in a test: files for those that read files, a producer
// process for those that wait for one. Made in a temporary folder that goes with the object.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "feeders/feeder.h"
#include "tests/support/temp_folder.h"

namespace penstock {

class FeederSurroundings {
 public:
  /// `images` per batch, 224x224x3 each. `program` is the path of penstock, which then serves.
  FeederSurroundings(const FeederEntry& entry, std::int32_t images, const std::string& program);

  /// The value of --fake-location for this feeder, here.
  const std::string& text() const noexcept { return text_; }
  const std::filesystem::path& directory() const noexcept { return folder_.path(); }

 private:
  TempFolder folder_;
  std::string text_;
};

}  // namespace penstock
