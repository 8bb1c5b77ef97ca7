// SPDX-License-Identifier: Apache-2.0
// Provides what a feeder of the table needs in a test: files for feeders that read files, a
// producer process for feeders that wait for one. Makes them in a temporary folder, which is
// removed with the object.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "feeders/feeder.h"
#include "tests/support/temp_folder.h"

namespace penstock {

class FeederSurroundings {
 public:
  /// `images` per batch, 224x224x3 each. `program` is the path of penstock, which is the producer.
  FeederSurroundings(const FeederEntry& entry, std::int32_t images, const std::string& program);

  /// The value of --fake-location for this feeder.
  const std::string& text() const noexcept { return text_; }
  const std::filesystem::path& directory() const noexcept { return folder_.path(); }

 private:
  TempFolder folder_;
  std::string text_;
};

}  // namespace penstock
