// SPDX-License-Identifier: Apache-2.0
#include "bench/run/trace/graph_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "dataflow/error.h"
#include "dataflow/machine/output_file.h"
#include "trainer/op_names.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

std::string name_of(const Graph& graph, NodeId id) {
  return id == Graph::kInput ? "input" : graph.nodes()[static_cast<std::size_t>(id)].name;
}

std::string shape_text(const ImageShape& shape) {
  return fmt::format("{}x{}x{}", shape.height, shape.width, shape.channels);
}

/// A quoted string of Graphviz or JSON.
std::string in_quotes(const std::string& text) { return Json(text).dump(); }

std::string totals_of(const Graph& graph) {
  return fmt::format(
      "{} nodes, {} parameters, {:.6g} million multiply-accumulates an image forward",
      graph.nodes().size(), graph.parameter_count(), graph.forward_macs_per_image() / 1e6);
}

std::string dot_of(const Graph& graph, std::string_view model) {
  std::string text = fmt::format("digraph {} {{\n  label={};\n  node [shape=box];\n",
                                 in_quotes(std::string(model)), in_quotes(totals_of(graph)));
  text += fmt::format("  \"input\" [label=\"input\\n{}\"];\n", shape_text(graph.input_shape()));
  for (const Node& node : graph.nodes()) {
    std::string label =
        fmt::format("{}\n{}\n{}", node.name, penstock::name_of(node.op), shape_text(node.shape));
    if (node.parameters > 0) label += fmt::format("\n{} parameters", node.parameters);
    text += fmt::format("  {} [label={}];\n", in_quotes(node.name), in_quotes(label));
    for (const NodeId input : node.inputs) {
      text += fmt::format("  {} -> {};\n", in_quotes(name_of(graph, input)), in_quotes(node.name));
    }
  }
  return text + "}\n";
}

Json shape_json(const ImageShape& shape) {
  return Json::array({shape.height, shape.width, shape.channels});
}

std::string json_of(const Graph& graph, std::string_view model) {
  Json nodes = Json::array();
  for (const Node& node : graph.nodes()) {
    Json inputs = Json::array();
    for (const NodeId input : node.inputs) inputs.push_back(name_of(graph, input));
    nodes.push_back(Json{{"name", node.name},
                         {"op", penstock::name_of(node.op)},
                         {"inputs", std::move(inputs)},
                         {"shape", shape_json(node.shape)},
                         {"parameters", node.parameters},
                         {"forward_macs", node.forward_macs}});
  }
  Json parameters = Json::array();
  for (const ParameterSpec& spec : graph.parameters()) {
    parameters.push_back(Json{{"name", spec.name}, {"shape", spec.shape}});
  }
  return Json{{"schema", 1},
              {"model", model},
              {"input", shape_json(graph.input_shape())},
              {"parameter_count", graph.parameter_count()},
              {"forward_macs_per_image", graph.forward_macs_per_image()},
              {"nodes", std::move(nodes)},
              {"parameters", std::move(parameters)}}
             .dump(1) +
         "\n";
}

std::string table_of(const Graph& graph, std::string_view model) {
  std::string text =
      fmt::format("{}: {}\n\n{:<32} {:<16} {:>14} {:>12} {:>12}  {}\n", model, totals_of(graph),
                  "node", "op", "shape", "parameters", "million MACs", "inputs");
  for (const Node& node : graph.nodes()) {
    std::string inputs;
    for (const NodeId input : node.inputs) {
      inputs += fmt::format("{}{}", inputs.empty() ? "" : ", ", name_of(graph, input));
    }
    text += fmt::format("{:<32} {:<16} {:>14} {:>12} {:>12.3f}  {}\n", node.name,
                        penstock::name_of(node.op), shape_text(node.shape), node.parameters,
                        node.forward_macs / 1e6, inputs);
  }
  return text;
}

}  // namespace

std::string graph_text(const Graph& graph, std::string_view model, std::string_view suffix) {
  if (suffix == ".dot") return dot_of(graph, model);
  if (suffix == ".json") return json_of(graph, model);
  if (suffix == ".txt") return table_of(graph, model);
  throw ConfigError(
      "--graph-file ends with '{}'; expected .dot (Graphviz), .json or .txt (a table)", suffix);
}

void write_graph_file(const std::string& path, const RunConfig& config, const ModelEntry& model) {
  if (path.empty()) return;
  ImageShape image = model.image;
  if (config.image_size > 0) image.height = image.width = config.image_size;
  const std::string text = graph_text(build_graph(model, image, config.classes), model.name,
                                      std::filesystem::path(path).extension().native());
  try {
    replace_file(path, text);
  } catch (const DataError& error) {
    throw ConfigError("--graph-file: {}", error.what());
  }
}

}  // namespace penstock
