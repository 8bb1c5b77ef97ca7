// SPDX-License-Identifier: Apache-2.0
// A model of the table: its input, and how to build its graph.
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
  std::int32_t batch = 32;  ///< images per device if --batch-size is not given
  std::int32_t classes = 1000;
  /// The least height and width of an image: all windows fit, and it is at least the product of the
  /// strides.
  std::int32_t min_side = 1;
  /// Training rate on one Tesla P100 in TensorFlow's benchmarks of 2017 (synthetic data, batch 64,
  /// AlexNet 512; tensorflow.org/performance/benchmarks). 0: no net of its family is listed there.
  double p100_img_per_s = 0;
  bool residual = false;   ///< tf_cnn_benchmarks has a schedule of learning rates for such nets
  bool computes = true;    ///< false: the graph has no nodes, so that only the feeder is measured
  bool takes_any = false;  ///< batches need not be images
  /// Adds the nodes. A graph without nodes computes nothing and takes no time. Callers should use
  /// build_graph() instead.
  void (*build)(Graph&, std::int32_t classes) = nullptr;
};

/// Builds the model for images of that shape. Throws ConfigError if the images are too small for
/// it.
Graph build_graph(const ModelEntry& model, const ImageShape& image, std::int32_t classes);

/// The model that stands for the user's own: its steps take time on an emulated device.
inline constexpr std::string_view kAnyModel = "any";

/// Every model of this program. Generated from the component lists.
const Table<ModelEntry>& model_table();

}  // namespace penstock
