// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/cuda/dnn_planner.h"

#include <fmt/format.h>

#include <algorithm>

#include "dataflow/error.h"

namespace penstock::gpu {
namespace {

Descriptor make_device(const std::string& properties) {
  Descriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device.set_text(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, properties);
  device.finalize("device from its description");
  return device;
}

Descriptor make_engine(const OperationGraph& graph, std::int64_t index, const Descriptor* device) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  engine.set_descriptor(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph.get());
  engine.set_integer(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, index);
  if (device != nullptr) engine.set_descriptor(CUDNN_ATTR_ENGINE_DEVICEPROP, *device);
  engine.finalize(fmt::format("engine {}", index));
  return engine;
}

std::vector<Descriptor> make_knobs(const EngineChoice& choice) {
  std::vector<Descriptor> knobs;
  for (const EngineChoice::Knob& knob : choice.knobs) {
    Descriptor& descriptor = knobs.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    descriptor.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE,
                   static_cast<cudnnBackendKnobType_t>(knob.type));
    descriptor.set_integer(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, knob.value);
    descriptor.finalize(fmt::format("knob {} = {}", knob.type, knob.value));
  }
  return knobs;
}

Descriptor make_configuration(const Descriptor& engine, const std::vector<Descriptor>& knobs) {
  Descriptor configuration(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  configuration.set_descriptor(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  if (!knobs.empty()) configuration.set_descriptors(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, knobs);
  configuration.finalize("configuration of an engine");
  return configuration;
}

Descriptor make_plan(const Descriptor& configuration, const Descriptor* device) {
  Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set_descriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  if (device != nullptr) plan.set_descriptor(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *device);
  return plan;
}

EngineChoice choice_of(const Descriptor& configuration) {
  const Descriptor engine =
      configuration.descriptor(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  EngineChoice choice{.engine = engine.integer(CUDNN_ATTR_ENGINE_GLOBAL_INDEX), .knobs = {}};
  for (const Descriptor& knob :
       configuration.descriptors(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                 CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS)) {
    choice.knobs.push_back({.type = knob.value<cudnnBackendKnobType_t>(
                                CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE),
                            .value = knob.integer(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)});
  }
  return choice;
}

/// Reads the library's notes about an engine. f32 products on tensor cores are rounded to tf32.
void take_notes(const Descriptor& engine, Candidate& candidate) {
  const auto numerical = engine.notes<cudnnBackendNumericalNote_t>(
      CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  const auto behaviour = engine.notes<cudnnBackendBehaviorNote_t>(
      CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
  const auto says = [&](cudnnBackendNumericalNote_t note) {
    return std::ranges::find(numerical, note) != numerical.end();
  };
  candidate.deterministic = !says(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
  candidate.tensor_cores = says(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  candidate.reduced_precision = says(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) ||
                                says(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
  candidate.compiled_at_run_time =
      std::ranges::find(behaviour, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != behaviour.end();
}

/// Sums over channels are added up in the order in which tiles finish. The library's notes do not
/// tell (cuDNN 9.19 on an H200: most such engines differ from run to run).
bool sums_channels(const DnnGraph& graph) {
  return std::ranges::any_of(graph.operations, [](const DnnOperation& operation) {
    return std::holds_alternative<DnnGenerateStatistics>(operation) ||
           std::holds_alternative<DnnBatchNormBackwardWeights>(operation);
  });
}

/// For weight gradients whose window has other paddings before than after. On an H200, cuDNN 9.19's
/// engine 1 reads outside the tensors then, and engine 20 is wrong. Neither uses tensor cores.
bool misreads_paddings(const DnnGraph& graph, const Candidate& candidate) {
  if (candidate.tensor_cores) return false;
  return std::ranges::any_of(graph.operations, [&](const DnnOperation& operation) {
    const auto* filter = std::get_if<DnnConvolutionBackwardFilter>(&operation);
    return filter != nullptr && filter->window.before != filter->window.after &&
           (candidate.choice.engine == 1 || candidate.choice.engine == 20);
  });
}

}  // namespace

CudnnPlan::CudnnPlan(std::shared_ptr<const OperationGraph> graph, Descriptor engine,
                     const EngineChoice& choice, const Descriptor* device)
    : graph_(std::move(graph)),
      engine_(std::move(engine)),
      knobs_(make_knobs(choice)),
      configuration_(make_configuration(engine_, knobs_)),
      plan_(make_plan(configuration_, device)),
      status_(plan_.try_finalize()) {
  if (status_ != CUDNN_STATUS_SUCCESS) return;
  workspace_bytes_ =
      static_cast<std::size_t>(plan_.integer(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
}

DnnPlanner::DnnPlanner(const std::string& properties) : device_(make_device(properties)) {}

std::vector<EngineChoice> DnnPlanner::choices(const OperationGraph& graph,
                                              cudnnBackendHeurMode_t mode) const {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set_descriptor(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.get());
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  if (device_) heuristics.set_descriptor(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *device_);
  const cudnnStatus_t status = heuristics.try_finalize();
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED) return {};
  check_dnn(status, "cudnnBackendFinalize(heuristics)");
  const std::int64_t count =
      heuristics.count(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR);
  std::vector<EngineChoice> choices;
  for (const Descriptor& configuration : heuristics.descriptors(
           CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count)) {
    choices.push_back(choice_of(configuration));
  }
  return choices;
}

/// Throws DeviceError if the library rejects the choice.
Candidate DnnPlanner::finalise(std::shared_ptr<const OperationGraph> graph, Candidate candidate,
                               Descriptor engine) const {
  auto plan = std::make_shared<const CudnnPlan>(std::move(graph), std::move(engine),
                                                candidate.choice, device());
  // The engine compiles, but there is no device that could load it.
  const bool only_a_device_is_missing = device_ && candidate.compiled_at_run_time &&
                                        plan->status() == CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER;
  if (!only_a_device_is_missing) check_dnn(plan->status(), "cudnnBackendFinalize(plan)");
  candidate.workspace_bytes = plan->workspace_bytes();
  if (!device_) candidate.plan = std::move(plan);
  return candidate;
}

// Read the notes before the plan is finalised: finalising compiles some engines, which takes about
// a second each.
std::vector<Candidate> DnnPlanner::candidates(const DnnGraph& graph, const PlanRules& rules,
                                              std::size_t most) {
  const std::lock_guard lock(mutex_);
  const auto operations = std::make_shared<const OperationGraph>(graph, handle_);
  const bool no_tensor_cores = !rules.allow_tf32 && multiplies_f32(graph);
  const bool any_order = sums_channels(graph);
  std::vector<EngineChoice> asked;
  std::vector<Candidate> found;
  std::vector<std::pair<Candidate, Descriptor>> compiled;
  std::size_t excluded_bytes = 0;
  const auto try_finalise = [&](Candidate candidate, Descriptor engine) {
    candidate = finalise(operations, std::move(candidate), std::move(engine));
    if (candidate.workspace_bytes <= rules.workspace_limit) {
      candidate.excluded_bytes = excluded_bytes;
      found.push_back(std::move(candidate));
    } else if (found.empty() && excluded_bytes == 0) {
      excluded_bytes = candidate.workspace_bytes;
    }
  };
  const auto consider = [&](const EngineChoice& choice) {
    Candidate candidate{.choice = choice};
    Descriptor engine = make_engine(*operations, choice.engine, device());
    take_notes(engine, candidate);
    candidate.deterministic = candidate.deterministic && !any_order;
    if ((no_tensor_cores && candidate.tensor_cores) || misreads_paddings(graph, candidate) ||
        (rules.deterministic && !candidate.deterministic) ||
        (!rules.reduced_precision && candidate.reduced_precision)) {
      return;
    }
    if (candidate.compiled_at_run_time) {
      compiled.emplace_back(std::move(candidate), std::move(engine));
    } else {
      try_finalise(std::move(candidate), std::move(engine));
    }
  };
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    if (found.size() >= most) break;
    for (const EngineChoice& choice : choices(*operations, mode)) {
      if (found.size() >= most) break;
      if (std::ranges::find(asked, choice) != asked.end()) continue;
      asked.push_back(choice);
      try {
        consider(choice);
      } catch (const DeviceError&) {
        continue;  // the library offers engines that fail; others may work
      }
    }
  }
  if (!found.empty()) return found;
  for (auto& [candidate, engine] : compiled) {
    if (found.size() >= most) break;
    try {
      try_finalise(std::move(candidate), std::move(engine));
    } catch (const DeviceError&) {
      continue;
    }
  }
  return found;
}

std::unique_ptr<CudnnPlan> DnnPlanner::plan(const DnnGraph& graph, const EngineChoice& choice) {
  const std::lock_guard lock(mutex_);
  const auto operations = std::make_shared<const OperationGraph>(graph, handle_);
  auto plan = std::make_unique<CudnnPlan>(
      operations, make_engine(*operations, choice.engine, device()), choice, device());
  check_dnn(plan->status(), fmt::format("cudnnBackendFinalize(plan of engine {} for {})",
                                        choice.engine, to_text(graph)));
  return plan;
}

std::string describe_device(cudnnHandle_t handle) {
  try {
    Descriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    device.set(CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, handle);
    device.finalize("device of a handle");
    return device.text(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
  } catch (const DeviceError&) {
    return {};
  }
}

}  // namespace penstock::gpu
