// SPDX-License-Identifier: Apache-2.0
// Plans a few graphs for the device that a file describes, and counts the calls of cuDNN. Prints a
// line for each graph: its name, how many engines, plans, and plans of engines compiled at run time
// were finalised, and the number of candidates. The linker redirects the planner's calls to
// __wrap_cudnnBackend*.
#include <cudnn.h>
#include <fmt/format.h>

#include <exception>
#include <map>
#include <vector>

#include "tests/support/text_files.h"
#include "trainer/backends/gpu/cuda/dnn_planner.h"
#include "trainer/backends/gpu/dnn_patterns.h"

namespace penstock::gpu {
namespace {

std::map<cudnnBackendDescriptor_t, cudnnBackendDescriptorType_t> types;
int engines, plans, compiled;

constexpr ConvolutionShape kShape{.images = 32,
                                  .channels = 128,
                                  .height = 28,
                                  .width = 28,
                                  .filters = 128,
                                  .window = {3, 3, 1, 1, 1, 1, 1}};

struct Case {
  const char* name;
  DnnGraph graph;
  PlanRules rules{};
  std::size_t most = 100;
};

void run(const char* description) {
  DnnPlanner planner(read_text(description));
  ConvolutionShape wide = kShape;
  wide.dtype = DType::f32;
  for (const Case& of : std::vector<Case>{
           {.name = "plain", .graph = conv_forward(kShape).graph},
           {.name = "plain_first", .graph = conv_forward(kShape).graph, .most = 1},
           {.name = "fused", .graph = conv_statistics(kShape).graph},
           {.name = "fused_first", .graph = conv_statistics(kShape).graph, .most = 1},
           {.name = "f32", .graph = conv_forward(wide).graph},
           {.name = "tf32", .graph = conv_forward(wide).graph, .rules = {.allow_tf32 = true}}}) {
    engines = plans = compiled = 0;
    const std::size_t found = planner.candidates(of.graph, of.rules, of.most).size();
    fmt::print("{} {} {} {} {}\n", of.name, engines, plans, compiled, found);
  }
  fmt::print("null handle '{}'\n", describe_device(nullptr));
}

}  // namespace
}  // namespace penstock::gpu

using penstock::gpu::compiled;
using penstock::gpu::engines;
using penstock::gpu::plans;
using penstock::gpu::types;

extern "C" {

cudnnStatus_t __real_cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                  cudnnBackendDescriptor_t* descriptor);
cudnnStatus_t __real_cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor);

cudnnStatus_t __wrap_cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                  cudnnBackendDescriptor_t* descriptor) {
  const cudnnStatus_t status = __real_cudnnBackendCreateDescriptor(type, descriptor);
  if (status == CUDNN_STATUS_SUCCESS) types[*descriptor] = type;
  return status;
}

cudnnStatus_t __wrap_cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  const cudnnStatus_t status = __real_cudnnBackendFinalize(descriptor);
  engines += types.at(descriptor) == CUDNN_BACKEND_ENGINE_DESCRIPTOR ? 1 : 0;
  if (types.at(descriptor) != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) return status;
  ++plans;
  // The compiled code cannot be loaded because there is no device.
  compiled += status == CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER ? 1 : 0;
  return status;
}
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    penstock::gpu::run(argv[1]);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
