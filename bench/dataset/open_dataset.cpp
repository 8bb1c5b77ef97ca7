// SPDX-License-Identifier: Apache-2.0
#include "bench/dataset/open_dataset.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "bench/cli.h"
#include "dataflow/datasets/detect_source.h"
#include "dataflow/datasets/shard_list.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/options.h"

namespace penstock::dataset {

std::unique_ptr<Source> open_dataset(const OpenDataset& order) {
  constexpr std::int32_t kMostClasses = 1'000'000;  // a limit, so that callers can count classes
  const ComponentText text = datasets::source_text(order.source, order.directory);
  const SourceEntry& entry = find_entry(source_table(), text.name);
  if (datasets::has_both_sets(order.directory)) {
    fmt::print(stderr,
               "penstock: of the two sets in '{0}' the training set is read; name the other with "
               "braces, such as --data-dir '{0}/validation-{{00000..00127}}-of-00128'\n",
               order.directory);
  }
  return entry.make({.directory = order.directory,
                     .epochs = 1,
                     .shuffle = order.shuffle,
                     .seed = order.seed,
                     .classes = kMostClasses,
                     .threads = order.threads,
                     .stop = order.stop},
                    Options(entry.name, entry.options, text));
}

std::unique_ptr<Decoder> make_whole_image_decoder(SampleKind kind) {
  const ComponentText text =
      parse_component(kind == SampleKind::pixels ? "raw:crop=full,flip=false"
                                                 : "jpeg:crop=full,flip=false,decode=full");
  const DecoderEntry& entry = find_entry(decoder_table(), text.name);
  return entry.make(Options(entry.name, entry.options, text));
}

void ensure_default_dataset(const std::string& data_dir, const std::stop_token& stop) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::directory_iterator entries(data_dir, error);
  if (!error && entries != fs::directory_iterator()) return;
  const std::string parent = fs::path(data_dir).parent_path().string();
  // Uses the table of verbs: a program built without libjpeg has no such verb, and the table knows
  // the reason.
  const VerbEntry& dataset = find_entry(verb_table(), "dataset");
  dataset.run({.program = {},
               .arguments = {"make", "--brief", "--data-dir=" + (parent.empty() ? "." : parent)},
               .stop = stop});
  if (stop.stop_requested()) {
    throw Error(fmt::format("{} was not made: stopped", data_dir));
  }
}

void refuse_missing_data(const RunConfig& config) {
  if (config.data_dir.empty() || config.data_dir.find('{') != std::string::npos) return;
  std::error_code error;
  if (std::filesystem::exists(config.data_dir, error)) return;
  throw ConfigError(
      fmt::format("--data-dir is '{}', which does not exist; expected a folder of class folders of "
                  "images, or a data set of `penstock list`",
                  config.data_dir));
}

void ensure_data_of(const RunConfig& config, const FeederEntry& feeder,
                    const std::stop_token& stop) {
  refuse_missing_data(config);
  const ComponentText asked = parse_component(config.fake_location);
  if (match_entry(feeder_table(), asked.name) == &feeder) {
    static_cast<void>(Options(asked.name, feeder.options, asked));  // throws before data are made
  }
  if (feeder.reads_files && config.data_dir.empty()) ensure_default_dataset("data/train", stop);
}

}  // namespace penstock::dataset
