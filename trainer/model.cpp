// SPDX-License-Identifier: Apache-2.0
#include "trainer/model.h"

#include <algorithm>
#include <string>

#include "dataflow/error.h"

namespace penstock {

Graph build_graph(const ModelEntry& model, const ImageShape& image, std::int32_t classes) {
  if (std::min(image.height, image.width) < model.min_side) {
    const std::string least = std::to_string(model.min_side);
    throw ConfigError("model '" + std::string(model.name) + "' cannot take images of " +
                      std::to_string(image.height) + "x" + std::to_string(image.width) +
                      "; expected at least " + least + "x" + least +
                      "; use larger images or another model");
  }
  Graph graph(image);
  model.build(graph, classes);
  return graph;
}

}  // namespace penstock
