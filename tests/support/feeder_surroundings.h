// SPDX-License-Identifier: Apache-2.0
// What a feeder of the table needs around it in a test: files for those that read files, a producer
// process for those that wait for one. Made in a temporary folder that goes with the object.
#pragma once

#include <filesystem>
#include <string>

#include "feeders/feeder.h"

namespace penstock {

class FeederSurroundings {
 public:
  /// `images` per batch of the producer's; it trains the model `null` of 224x224x3.
  FeederSurroundings(const FeederEntry& entry, std::int32_t images);
  FeederSurroundings(const FeederSurroundings&) = delete;
  FeederSurroundings& operator=(const FeederSurroundings&) = delete;
  ~FeederSurroundings();

  /// The value of --fake-location for this feeder, here.
  const std::string& text() const noexcept { return text_; }
  const std::filesystem::path& directory() const noexcept { return directory_; }

 private:
  std::filesystem::path directory_;
  std::string text_;
};

}  // namespace penstock
