// SPDX-License-Identifier: Apache-2.0
// The tables of components that a user can name, as `penstock list` shows them.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "bench/cli.h"
#include "bench/report/report.h"
#include "dataflow/datasets/dataset_writer.h"
#include "dataflow/datasets/shard_stream.h"
#include "dataflow/decoder.h"
#include "dataflow/source.h"
#include "feeders/feeder.h"
#include "trainer/backend.h"
#include "trainer/collectives/all_reduce.h"
#include "trainer/model.h"
#include "trainer/optimizer.h"
#include "trainer/update_strategy.h"

namespace penstock {

/// The command-line word for a kind: data-set-format for "data set format (--to)".
inline std::string word_of_kind(std::string_view title) {
  std::string word = canonical_name(title.substr(0, title.find(" (")));
  std::ranges::replace(word, ' ', '-');
  return word;
}

/// Calls `visit` with each table.
template <typename Visit>
void for_each_component_table(const Visit& visit) {
  visit(feeder_table());
  visit(source_table());
  visit(datasets::decompressor_table());
  visit(decoder_table());
  visit(model_table());
  visit(backend_table());
  visit(update_table());
  visit(optimizer_table());
  visit(collectives::all_reduce_table());
  visit(datasets::dataset_writer_table());
  visit(report::report_table());
}

}  // namespace penstock
