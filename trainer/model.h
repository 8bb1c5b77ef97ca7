// SPDX-License-Identifier: Apache-2.0
// A model of the table: what it eats, and how to build its graph.
//
// To add one: a file in models/ that ends in `extern constinit const ModelEntry NAME_model{...}`,
// and one line `penstock_component(model NAME)` there.
#pragma once

#include <cstdint>
#include <string_view>

#include "dataflow/batch.h"
#include "dataflow/entry.h"
#include "trainer/graph.h"

namespace penstock {

struct ModelEntry {
  std::string_view name{}, summary{};
  ImageShape image{};
  std::int32_t batch = 32;  ///< images per device where --batch-size is not given
  /// Adds the nodes; a graph without nodes computes nothing and takes no time.
  void (*build)(Graph&, std::int32_t classes) = nullptr;
};

/// Every model of this program; generated from the component lists.
const Table<ModelEntry>& model_table();

}  // namespace penstock
