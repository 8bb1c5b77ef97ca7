// SPDX-License-Identifier: Apache-2.0
// A model of the table: what it eats, and how to build its graph.
//
// To add one: a file in models/ that ends in `extern constinit const ModelEntry NAME_model{...}`,
// and one line `penstock_component(model NAME)` there. A file may hold a family of them:
// `penstock_component(model FAMILY ENTRIES NAME OTHER_NAME)`.
#pragma once

#include <cstdint>
#include <string_view>

#include "dataflow/batch.h"
#include "dataflow/entry.h"
#include "trainer/graph.h"

namespace penstock {

struct ModelEntry {
  std::string_view name{}, summary{};
  std::string_view aliases{};  ///< other systems' names for it, separated by spaces
  ImageShape image{};
  std::int32_t batch = 32;  ///< images per device where --batch-size is not given
  std::int32_t classes = 1000;
  /// The least height and width of an image: what all windows fit, and no less than the product of
  /// the strides.
  std::int32_t min_side = 1;
  /// Adds the nodes; a graph without nodes computes nothing and takes no time. Callers want
  /// build_graph().
  void (*build)(Graph&, std::int32_t classes) = nullptr;
};

/// The model for images of that shape. Throws ConfigError for images smaller than it can take.
Graph build_graph(const ModelEntry& model, const ImageShape& image, std::int32_t classes);

/// Every model of this program; generated from the component lists.
const Table<ModelEntry>& model_table();

}  // namespace penstock
