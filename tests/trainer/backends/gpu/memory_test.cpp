// SPDX-License-Identifier: Apache-2.0
// Tests that a batch that does not fit is refused before any work begins, and that the message
// names a batch that fits.
#include <gtest/gtest.h>

#include <charconv>
#include <memory>
#include <string>
#include <vector>

#include "dataflow/error.h"
#include "tests/support/gpu/host_driver.h"
#include "tests/support/small_graphs.h"
#include "tests/support/thrown_by.h"
#include "trainer/backends/gpu/backend.h"
#include "trainer/model.h"

namespace penstock::gpu {
namespace {

/// Replicas of one GPU, compiled as in a run.
class Machine {
 public:
  Machine(std::size_t memory_bytes, std::int32_t replicas, bool autotune = false)
      : backend_(
            std::make_shared<HostDriverLibrary>(HostMachineOptions{.memory_bytes = memory_bytes}),
            Options("gpu", kOptions,
                    parse_component(std::string("gpu:autotune=") + (autotune ? "true" : "false") +
                                    ",replicas=" + std::to_string(replicas)))),
        replicas_(replicas) {}

  /// The reason why a batch is refused; empty if it fits on all replicas.
  std::string refusal(const Graph& graph, std::int32_t images, Precision precision) {
    std::vector<std::unique_ptr<Device>> devices;
    for (std::int32_t rank = 0; rank < replicas_; ++rank) devices.push_back(backend_.open(rank));
    std::vector<std::unique_ptr<Executable>> executables;
    try {
      for (const auto& device : devices) {
        executables.push_back(
            backend_.compile(graph,
                             {.batch = {.images = images,
                                        .image = graph.input_shape(),
                                        .classes = graph.nodes().back().shape.channels},
                              .precision = precision,
                              .local_ranks = replicas_},
                             *device));
      }
    } catch (const ConfigError& error) {
      EXPECT_TRUE(executables.empty()) << "some replicas had begun";
      return error.what();
    }
    return {};
  }

 private:
  GpuBackend backend_;
  const std::int32_t replicas_;
};

std::int32_t fitting_batch(const std::string& refusal) {
  const std::string_view before = "; a batch of ";
  const std::size_t place = refusal.find(before);
  if (place == std::string::npos) return 0;
  std::int32_t images = 0;
  const char* const first = refusal.data() + place + before.size();
  EXPECT_EQ(*std::from_chars(first, refusal.data() + refusal.size(), images).ptr, ' ');
  return images;
}

/// A model for small images, which the host computes quickly.
Graph model(const char* name) {
  Graph graph({16, 16, 3});
  find_entry(model_table(), name).build(graph, 10);
  return graph;
}

struct Case {
  const char* model;
  std::size_t memory_mib;
  std::int32_t images;
};

TEST(GpuMemory, ABatchTooLargeIsRefusedWithTheLargestThatFits) {
  for (const Case& tried :
       {Case{"tiny-cnn", 6, 300}, Case{"lenet", 30, 900}, Case{"resnet20", 12, 200}}) {
    const Graph graph = model(tried.model);
    for (const Precision precision : {Precision::f32, Precision::f16}) {
      for (const std::int32_t replicas : {1, 2}) {
        SCOPED_TRACE(std::string(tried.model) + " in " + std::string(to_string(precision)) + ", " +
                     std::to_string(replicas) + " replicas");
        const auto refusal = [&](std::int32_t images) {
          return Machine(tried.memory_mib << 20, replicas).refusal(graph, images, precision);
        };
        const std::string text = refusal(tried.images);
        EXPECT_EQ(text.find("--batch-size is " + std::to_string(tried.images) + ": training needs"),
                  0U)
            << text;
        const std::int32_t fitting = fitting_batch(text);
        ASSERT_GT(fitting, 0) << text;
        EXPECT_EQ(refusal(fitting), "");
        EXPECT_NE(refusal(fitting + 1 + fitting / 50), "") << fitting;
      }
    }
  }
}

/// The operands of one engine alone would not fit, so the refusal comes before engines are timed.
TEST(GpuMemory, ABatchFarTooLargeIsRefusedBeforeEnginesAreTimed) {
  const std::string text =
      Machine(std::size_t{12} << 20, 1, true).refusal(model("resnet20"), 1 << 14, Precision::f16);
  EXPECT_TRUE(says(text, "training needs"));
  EXPECT_GT(fitting_batch(text), 0) << text;
}

TEST(GpuMemory, AModelTooLargeForOneImageIsRefusedByName) {
  const std::string text =
      Machine(std::size_t{1} << 20, 1).refusal(model("lenet"), 8, Precision::f32);
  EXPECT_TRUE(says(text, "not even one image fits: use a smaller model"));
}

TEST(GpuMemory, AnAllocationThatFailsAfterAllNamesTheDeviceAndLeavesNothing) {
  const auto library = std::make_shared<HostDriverLibrary>();
  HostDriver* driver = nullptr;
  library->on_open = [&](HostDriver& opened) { driver = &opened; };
  GpuBackend backend(library, Options("gpu", kOptions, {}));
  const std::unique_ptr<Device> device = backend.open(0);
  const Graph graph = model("lenet");
  const ExecutableSpec spec{.batch = {.images = 2, .image = graph.input_shape(), .classes = 10}};
  const std::size_t free = driver->free_bytes();
  for (std::int32_t nth = 1; nth <= 6; ++nth) {
    driver->fail_at("allocate", nth);
    EXPECT_EQ(thrown_by<DeviceError>([&] { backend.compile(graph, spec, *device); }),
              "allocate failed on host 0, as the test wants it to")
        << nth;
    EXPECT_EQ(driver->free_bytes(), free) << nth;
    EXPECT_EQ(driver->races(), std::vector<std::string>{}) << nth;
  }
  EXPECT_NE(backend.compile(graph, spec, *device), nullptr);
}

}  // namespace
}  // namespace penstock::gpu
