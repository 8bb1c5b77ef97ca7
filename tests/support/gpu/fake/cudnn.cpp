// SPDX-License-Identifier: Apache-2.0
// The functions of libcudnn.so.9 that libpenstock_cuda.so calls. Descriptors store the attributes
// that they are given; the interpreter of DNN graphs runs plans. Engines, in the order in which
// heuristics name them:
//   mode A          1 if the graph multiplies f32 (rounded to tf32), 0 (exact)
//   fall-back       2 (exact)
// Each engine has one knob. The first execution of a handle allocates memory, as a real handle may
// do.
#include <cudnn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "tests/support/gpu/fake/dnn_description.h"
#include "tests/support/gpu/fake/machine.h"
#include "tests/support/gpu/host_planner.h"

using penstock::gpu::DnnGraph;
using penstock::gpu::HostOperation;
using penstock::gpu::HostPlan;
namespace fake = penstock::gpu::fake;
using fake::Description;
using fake::DnnFailure;
using fake::During;
using fake::machine;

struct cudnnContext {
  int device = 0;
  cudaStream_t stream = nullptr;
  bool executed = false;
};

namespace {

constexpr std::int64_t kExact = 0, kTf32 = 1, kFallback = 2;
constexpr cudnnBackendKnobType_t kKnob = CUDNN_KNOB_TYPE_SPLIT_K;
constexpr std::int64_t kKnobValue = 7;
constexpr std::size_t kFallbackWorkspace = 512;

/// The object behind a cudnnBackendDescriptor_t.
struct Handle {
  std::shared_ptr<Description> to = std::make_shared<Description>();
};
Handle& handle_of(cudnnBackendDescriptor_t descriptor) {
  if (descriptor == nullptr) throw DnnFailure(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a descriptor");
  return *static_cast<Handle*>(descriptor);
}
const Description& finalised(cudnnBackendDescriptor_t descriptor) {
  const Description& of = *handle_of(descriptor).to;
  if (!of.finalised) throw DnnFailure(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor");
  return of;
}

std::string& last_text() {
  thread_local std::string text;
  return text;
}

/// Runs `work`. A DnnFailure becomes the result.
template <typename Work>
cudnnStatus_t call(const char* name, const Work& work) {
  try {
    if (const int planned = machine().planned(name); planned != 0) {
      throw DnnFailure(static_cast<cudnnStatus_t>(planned), "as the test wants it");
    }
    work();
    last_text().clear();
    return CUDNN_STATUS_SUCCESS;
  } catch (const DnnFailure& failure) {
    last_text() = failure.what();
    return failure.status;
  } catch (const std::exception& failure) {
    last_text() = failure.what();
    return CUDNN_STATUS_INTERNAL_ERROR;
  }
}

/// A call of CUDA that cuDNN itself makes.
template <typename Work>
void cuda_call(const char* name, During during, const Work& work) {
  const cudaError_t status = machine().call(name, during, work);
  if (status == cudaSuccess) return;
  throw DnnFailure(CUDNN_STATUS_EXECUTION_FAILED_CUDART,
                   fmt::format("{} returned {}", name, static_cast<int>(status)));
}

std::size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_CHAR:
    case CUDNN_TYPE_BOOLEAN:
      return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
      return 8;
    default:
      return 4;  // float, and enumerations
  }
}

std::shared_ptr<Description> make(cudnnBackendDescriptorType_t type) {
  auto made = std::make_shared<Description>();
  made->type = type;
  made->finalised = true;
  return made;
}

/// The engines that a heuristics mode names.
std::vector<std::int64_t> engines_of(const DnnGraph& graph, cudnnBackendHeurMode_t mode) {
  if (mode == CUDNN_HEUR_MODE_FALLBACK) return {kFallback};
  return multiplies_f32(graph) ? std::vector{kTf32, kExact} : std::vector{kExact};
}

void finalise_engine(Description& engine) {
  const auto index = engine.value<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  if (index < kExact || index > kFallback) {
    throw DnnFailure(CUDNN_STATUS_NOT_SUPPORTED, fmt::format("there is no engine {}", index));
  }
  std::vector<cudnnBackendNumericalNote_t> notes;
  if (index == kTf32) notes.push_back(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  engine.set<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                          CUDNN_TYPE_NUMERICAL_NOTE, notes);
  engine.set<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                         {});
}

void finalise_heuristics(Description& heuristics) {
  const auto& graph = heuristics.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  const auto mode = heuristics.value<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE);
  Description::Attribute results{.type = CUDNN_TYPE_BACKEND_DESCRIPTOR};
  for (const std::int64_t index : engines_of(*graph.parts.at(0)->graph, mode)) {
    const auto engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    engine->attributes[CUDNN_ATTR_ENGINE_OPERATION_GRAPH] = graph;
    engine->set<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, std::array{index});
    finalise_engine(*engine);
    const auto knob = make(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    knob->set<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE,
                                      std::array{kKnob});
    knob->set<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64,
                            std::array{kKnobValue});
    const auto configuration = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    configuration->attributes[CUDNN_ATTR_ENGINECFG_ENGINE] = {.type = CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                              .parts = {engine}};
    configuration->attributes[CUDNN_ATTR_ENGINECFG_KNOB_CHOICES] = {
        .type = CUDNN_TYPE_BACKEND_DESCRIPTOR, .parts = {knob}};
    results.parts.push_back(configuration);
  }
  heuristics.attributes[CUDNN_ATTR_ENGINEHEUR_RESULTS] = results;
}

/// What the host runs for a plan's description, and the engine's number.
std::pair<HostPlan, std::int64_t> host_plan_of(const Description& plan) {
  const Description& engine =
      plan.part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).part(CUDNN_ATTR_ENGINECFG_ENGINE);
  const auto index = engine.value<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  const DnnGraph& graph = *engine.part(CUDNN_ATTR_ENGINE_OPERATION_GRAPH).graph;
  HostPlan host(graph, {.engine = index == kTf32 ? kTf32 : kExact, .knobs = {}});
  if (index == kFallback) host.workspace += kFallbackWorkspace;
  return {std::move(host), index};
}

void finalise_plan(Description& plan) {
  for (const auto& knob : plan.part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
                              .at(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES)
                              .parts) {
    if (knob->value<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE) == kKnob &&
        knob->value<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE) == kKnobValue) {
      continue;
    }
    throw DnnFailure(CUDNN_STATUS_BAD_PARAM, "a knob that was not offered");
  }
  const auto [host, engine] = host_plan_of(plan);
  if (engine == machine().settings.refused_engine) {
    throw DnnFailure(CUDNN_STATUS_NOT_SUPPORTED, "an engine that the test refuses");
  }
  const auto workspace = static_cast<std::int64_t>(host.workspace);
  plan.set<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                         std::array{workspace});
}

/// A handle may be used only while its GPU is the thread's current one.
void expect_current_device(const cudnnContext& handle) {
  if (handle.device == fake::current_device()) return;
  throw DnnFailure(CUDNN_STATUS_BAD_PARAM, "the handle is of another GPU than the current one");
}

void finalise(Description& description) {
  switch (description.type) {
    case CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR: {
      static constexpr std::string_view kText = R"({"name": "Fake GPU"})";
      description.set<char>(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                            std::span(kText.data(), kText.size()));
      break;
    }
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      if (description.has(CUDNN_ATTR_OPERATIONGRAPH_HANDLE)) {
        expect_current_device(*description.value<cudnnHandle_t>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE));
      }
      description.graph = std::make_shared<const DnnGraph>(graph_of(description));
      break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      finalise_heuristics(description);
      break;
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
      finalise_engine(description);
      break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      finalise_plan(description);
      break;
    default:
      break;
  }
  description.finalised = true;
}

/// The variant pack's tensors, indexed like the graph's tensors.
std::vector<std::byte*> tensors_of(const DnnGraph& graph, const Description& pack) {
  std::vector<std::byte*> tensors(graph.tensors.size());
  const auto ids = pack.values<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.values<std::byte*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  for (std::size_t i = 0; i < std::min(ids.size(), pointers.size()); ++i) {
    tensors.at(static_cast<std::size_t>(ids[i] - 1)) = pointers[i];
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (graph.tensors[i].is_virtual != (tensors[i] == nullptr)) {
      throw DnnFailure(CUDNN_STATUS_BAD_PARAM, "not each tensor in memory has a pointer");
    }
    if (reinterpret_cast<std::uintptr_t>(tensors[i]) % 16 != 0) {
      throw DnnFailure(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "a tensor");
    }
  }
  return tensors;
}

void execute(cudnnContext& handle, const Description& plan, const Description& pack) {
  expect_current_device(handle);
  const auto [host, engine] = host_plan_of(plan);
  HostOperation operation = host.operation(
      tensors_of(*host.graph, pack), pack.value<std::byte*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE));
  if (engine == machine().settings.broken_engine) {
    throw DnnFailure(CUDNN_STATUS_EXECUTION_FAILED, "an engine that the test breaks");
  }
  if (!std::exchange(handle.executed, true)) {
    cuda_call("cudaMalloc", During::outside_recordings, [] { return cudaSuccess; });
  }
  cuda_call("cudaLaunchKernel", During::any,
            [&] { return machine().enqueue(handle.stream, std::move(operation)); });
}

}  // namespace

std::size_t cudnnGetVersion() { return machine().settings.dnn_version; }

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_NOT_SUPPORTED:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_EXECUTION_FAILED:
      return "CUDNN_STATUS_EXECUTION_FAILED";
    case CUDNN_STATUS_EXECUTION_FAILED_CUDART:
      return "CUDNN_STATUS_EXECUTION_FAILED_CUDART";
    default:
      return "CUDNN_STATUS_BAD_PARAM";
  }
}

void cudnnGetLastErrorString(char* message, std::size_t size) {
  *fmt::format_to_n(message, size - 1, "{}", last_text()).out = '\0';
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  return call("cudnnCreate", [&] {
    cuda_call("cudaMalloc", During::outside_recordings, [] { return cudaSuccess; });
    *handle = new cudnnContext{.device = fake::current_device()};
  });
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  return call("cudnnDestroy", [&] {
    const std::unique_ptr<cudnnContext> owned(handle);
    cuda_call("cudaFree", During::outside_recordings, [] { return cudaSuccess; });
  });
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return call("cudnnSetStream", [&] {
    cuda_call("cudaStreamGetDevice", During::outside_recordings, [&] {
      return handle->device == fake::current_device() ? machine().usable(stream)
                                                      : cudaErrorInvalidResourceHandle;
    });
    handle->stream = stream;
  });
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  return call("cudnnBackendCreateDescriptor", [&] {
    auto handle = std::make_unique<Handle>();
    handle->to->type = type;
    *descriptor = handle.release();
  });
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return call("cudnnBackendDestroyDescriptor", [&] { delete &handle_of(descriptor); });
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count,
                                       const void* values) {
  return call("cudnnBackendSetAttribute", [&] {
    Description& to = *handle_of(descriptor).to;
    if (to.finalised) throw DnnFailure(CUDNN_STATUS_BAD_PARAM, "the descriptor is finalised");
    Description::Attribute attribute{.type = type};
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
      const std::span handles(static_cast<const cudnnBackendDescriptor_t*>(values),
                              static_cast<std::size_t>(count));
      for (const cudnnBackendDescriptor_t part : handles) {
        finalised(part);
        attribute.parts.push_back(handle_of(part).to);
      }
    } else {
      const std::span bytes(static_cast<const std::byte*>(values),
                            static_cast<std::size_t>(count) * size_of(type));
      attribute.values.assign(bytes.begin(), bytes.end());
    }
    to.attributes[name] = std::move(attribute);
  });
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t most,
                                       std::int64_t* count, void* values) {
  return call("cudnnBackendGetAttribute", [&] {
    const Description::Attribute& attribute = finalised(descriptor).at(name);
    if (attribute.type != type) {
      throw DnnFailure(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "an attribute of another type");
    }
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
      *count = static_cast<std::int64_t>(attribute.parts.size());
      for (std::int64_t i = 0; i < std::min(most, *count); ++i) {
        const auto& part = attribute.parts[static_cast<std::size_t>(i)];
        handle_of(static_cast<cudnnBackendDescriptor_t*>(values)[i]).to =
            std::const_pointer_cast<Description>(part);
      }
      return;
    }
    *count = static_cast<std::int64_t>(attribute.values.size() / size_of(type));
    if (const std::int64_t copied = std::min(most, *count); copied > 0) {
      std::memcpy(values, attribute.values.data(),
                  static_cast<std::size_t>(copied) * size_of(type));
    }
  });
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return call("cudnnBackendFinalize", [&] { finalise(*handle_of(descriptor).to); });
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  return call("cudnnBackendExecute", [&] { execute(*handle, finalised(plan), finalised(pack)); });
}
