// SPDX-License-Identifier: Apache-2.0
#include "trainer/model.h"

#include <algorithm>
#include <string>

#include "dataflow/error.h"

namespace penstock {

Graph build_graph(const ModelEntry& model, const ImageShape& image, std::int32_t classes) {
  if (std::min(image.height, image.width) < model.min_side) {
    const std::string least = std::to_string(model.min_side);
    throw ConfigError(
        "model '{}' cannot take images of {}x{}; expected at least {}x{}; use larger images or "
        "another model",
        model.name, image.height, image.width, least, least);
  }
  Graph graph(image);
  model.build(graph, classes);
  return graph;
}

}  // namespace penstock
