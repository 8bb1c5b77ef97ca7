// SPDX-License-Identifier: Apache-2.0
#include "bench/dataset/default_dataset.h"

#include <filesystem>
#include <system_error>

#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"

namespace penstock::dataset {

void ensure_default_dataset(const std::string& data_dir, const std::stop_token& stop) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::directory_iterator entries(data_dir, error);
  if (!error && entries != fs::directory_iterator()) return;
  const std::string parent = fs::path(data_dir).parent_path().string();
  make_default_dataset(parent.empty() ? "." : parent, stop);
  if (stop.stop_requested()) {
    throw Error("{} was not made: stopped", data_dir);
  }
}

void refuse_missing_data(const RunConfig& config) {
  if (config.data_dir.empty() || config.data_dir.find('{') != std::string::npos) return;
  std::error_code error;
  if (std::filesystem::exists(config.data_dir, error)) return;
  throw ConfigError(
      "--data-dir is '{}', which does not exist; expected a folder of class folders of images, or "
      "a data set of `penstock list`",
      config.data_dir);
}

void ensure_data_of(const RunConfig& config, const FeederEntry& feeder,
                    const std::stop_token& stop) {
  refuse_missing_data(config);
  const ComponentText text = parse_component(config.fake_location);
  if (match_entry(feeder_table(), text.name) == &feeder) {
    static_cast<void>(Options(text.name, feeder.options, text));  // throws before data are made
  }
  if (feeder.reads_files && config.data_dir.empty()) ensure_default_dataset("data/train", stop);
}

}  // namespace penstock::dataset
