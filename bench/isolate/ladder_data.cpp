// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/ladder_data.h"

#include <memory>
#include <string>

#include "bench/dataset/open_dataset.h"
#include "dataflow/options.h"
#include "dataflow/packed/detect_source.h"

namespace penstock {
namespace {

/// The option `source` of the feeder, where that is `queue`.
std::string typed_source(const RunConfig& config) {
  const ComponentText feeder = parse_component(config.fake_location);
  for (const auto& [key, value] : feeder.values) {
    if (feeder.name == "queue" && key == "source") return value;
  }
  return "auto";
}

}  // namespace

LadderData ladder_data(const RunConfig& config, const std::stop_token& stop) {
  const std::string text = typed_source(config);
  const ComponentText source = source_text(text, config.data_dir);
  if (source.name == "memory" || (source.name == "image-folder" && source.values.empty())) {
    return {};
  }
  const std::unique_ptr<Source> opened = open_dataset({.directory = config.data_dir,
                                                       .source = text,
                                                       .threads = config.feeder_threads,
                                                       .stop = stop});
  return {.is_folder = false, .kind = opened->kind(), .examples = opened->size()};
}

}  // namespace penstock
