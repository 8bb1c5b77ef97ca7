// SPDX-License-Identifier: Apache-2.0
// Makes the synthetic data set: DIR/{train,val}/<class>/*.JPEG, and DIR/dataset.json with what it
// was made from. The bytes are a function of the parameters, not of the number of threads.
//
// Everything is written under a hidden folder inside DIR and renamed once it is complete: a split
// that exists is whole, however its making was interrupted, and two processes may make the same
// one.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

namespace penstock {

struct DatasetParameters {
  std::int64_t images = 1000;     ///< of the split train
  std::int64_t val_images = 200;  ///< of the split val
  std::int32_t classes = 8;
  std::int32_t quality = 96;
  std::uint64_t seed = 1;
  bool operator==(const DatasetParameters&) const = default;
};

/// As many classes as there are kinds of scenes.
std::int32_t most_classes();

struct MakeDataset {
  std::string directory = "data";
  DatasetParameters parameters{};
  bool force = false;  ///< replace splits that were made otherwise
  std::int32_t threads = 1;
  /// Called by the calling thread, with done = 0 once it is clear that there is something to make,
  /// and then a few times a second. May be empty.
  std::function<void(std::int64_t done, std::int64_t total)> on_progress{};
};

struct MadeDataset {
  enum class Outcome : std::uint8_t { made, already_there, stopped } outcome = Outcome::made;
  std::int64_t bytes = 0;  ///< of all images that were made
};

/// Blocks until it is made. Throws ConfigError when the folder cannot be written, or holds splits
/// of other parameters; whatever ends it early, what it wrote is removed.
MadeDataset make_dataset(const MakeDataset& order, const std::stop_token& stop);

/// Seconds that make_dataset takes on so many threads, roughly: for announcements.
double estimated_seconds(const DatasetParameters& parameters, std::int32_t threads);

}  // namespace penstock
