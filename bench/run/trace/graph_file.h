// SPDX-License-Identifier: Apache-2.0
// Writes a model's graph for readers and for other programs: nodes, shapes, edges, parameters and
// work.
#pragma once

#include <string>
#include <string_view>

#include "bench/config/run_config.h"
#include "trainer/graph.h"
#include "trainer/model.h"

namespace penstock {

/// The graph in the form that `suffix` names: ".dot" for Graphviz, ".json", or ".txt", a table.
/// Shapes and multiply-accumulates are those of one image, forward. Throws ConfigError for another
/// suffix.
std::string graph_text(const Graph& graph, std::string_view model, std::string_view suffix);

/// Writes the graph of a run's model; does nothing without a path. Throws ConfigError.
void write_graph_file(const std::string& path, const RunConfig& config, const ModelEntry& model);

}  // namespace penstock
