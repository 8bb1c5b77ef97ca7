// SPDX-License-Identifier: Apache-2.0
// Makes the synthetic data set: DIR/{train,val}/<class>/*.JPEG, and DIR/dataset.json with its
// parameters. The bytes depend on the parameters, not on the number of threads.
//
// It writes to a hidden folder inside DIR and renames it when it is complete. So an existing split
// is always complete, even after an interruption, and two processes may make the same data set.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

namespace penstock::dataset {

struct DatasetParameters {
  std::int64_t images = 1000;     ///< of the split train
  std::int64_t val_images = 200;  ///< of the split val
  std::int32_t classes = 8;
  std::int32_t quality = 96;
  std::uint64_t seed = 1;
  bool operator==(const DatasetParameters&) const = default;
};

/// The number of textures.
std::int32_t most_classes();

struct MakeDataset {
  std::string directory = "data";
  DatasetParameters parameters{};
  bool force = false;  ///< replace splits with other parameters
  std::int32_t threads = 1;
  /// Called on the calling thread: with done = 0 when there is something to make, and then a few
  /// times a second. May be empty.
  std::function<void(std::int64_t done, std::int64_t total)> on_progress{};
};

struct MadeDataset {
  enum class Outcome : std::uint8_t { made, already_there, stopped } outcome = Outcome::made;
  std::int64_t bytes = 0;  ///< of all images made
};

/// Blocks until the data set is made. Throws ConfigError if the folder cannot be written or holds
/// splits with other parameters. If it ends early, it removes what it wrote.
MadeDataset make_dataset(const MakeDataset& order, const std::stop_token& stop);

/// Says in one line on stderr what make_dataset makes, and about how long it takes.
void announce(const MakeDataset& order);

}  // namespace penstock::dataset
