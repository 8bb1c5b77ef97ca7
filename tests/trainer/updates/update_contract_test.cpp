// SPDX-License-Identifier: Apache-2.0
// Tests the contract that every update of the table must keep.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <future>
#include <string>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "tests/support/entry_names.h"
#include "tests/support/rank_threads.h"
#include "trainer/cluster/model_store.h"
#include "trainer/collectives/threads.h"
#include "trainer/update_strategy.h"
#include "trainer/updates/arena_copy.h"
#include "trainer/updates/host_weights.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// Three gradients that differ by rank: 1, 10 and 100 times (rank + 1). Weights start at -rank - 1.
class FixedGradients final : public Executable {
 public:
  explicit FixedGradients(std::int32_t rank) : weights_(3, -1.F - static_cast<float>(rank)) {
    for (const float scale : {1.F, 10.F, 100.F})
      gradients_.push_back(scale * static_cast<float>(rank + 1));
    set_.weights = {weights_.data(), weights_.size()};
    set_.gradients = {gradients_.data(), gradients_.size()};
    set_.parameters.push_back({{"w", 0, Role::weight, {3}}, set_.weights, set_.gradients});
  }
  const ParameterSet& parameters() const noexcept override { return set_; }
  void run(Phase, const Batch&, Stream&, const GradientReady&, StepResult&) override {}
  void read(const ParameterSpec&, const Tensor&, std::span<float>) override {}
  void write(const ParameterSpec&, const Tensor&, std::span<const float>) override {}
  void set_step(std::int64_t) override {}
  const std::vector<float>& weights() const { return weights_; }

 private:
  std::vector<float> weights_, gradients_;
  ParameterSet set_;
};

/// Its memory holds NaN until it is written, as that of a GPU may.
class UnwrittenMemory final : public HostDevice {
 public:
  using HostDevice::HostDevice;
  Buffer allocate(std::size_t bytes, MemoryKind kind) override {
    Buffer memory = HostDevice::allocate(bytes, kind);
    std::ranges::fill(memory.bytes(), std::byte{0xff});
    return memory;
  }
};

class UpdateContract : public ::testing::TestWithParam<const UpdateEntry*> {
 protected:
  const UpdateEntry& entry() const { return *GetParam(); }
  /// One rank's strategy with plain gradient descent at a rate of 1.
  struct Rank {
    const Options options;
    std::unique_ptr<Collective> collective;
    std::unique_ptr<Optimizer> optimizer;
    std::unique_ptr<UpdateStrategy> strategy;
  };
  Rank make(collectives::ThreadsGroup& group, cluster::ModelStore& models, std::int32_t rank,
            GradientReduction reduction, const ComponentText& values = {}) {
    Rank made{Options(entry().name, entry().options, values), group.join(rank), nullptr, nullptr};
    const Options sgd_options("sgd", {}, {});
    made.optimizer =
        make_host_optimizer({find_entry(optimizer_table(), "sgd"), sgd_options}, serial_for);
    made.optimizer->set({.learning_rate = 1}, *device_.make_stream());
    const UpdateContext context{.collective = *made.collective,
                                .optimizer = *made.optimizer,
                                .reduction = reduction,
                                .local_ranks = made.collective->world().size,
                                .options = made.options,
                                .device = &device_};
    made.strategy = entry().make_reading == nullptr
                        ? entry().make(context)
                        : entry().make_reading(context, {models, clock_});
    return made;
  }
  static std::string where(std::int32_t ranks, std::int32_t rank, std::size_t element) {
    return std::to_string(ranks) + " ranks, rank " + std::to_string(rank) + ", element " +
           std::to_string(element);
  }

  SteadyClock clock_;
  UnwrittenMemory device_{clock_};
};

TEST_P(UpdateContract, WeightsAreWhatItsAgreementSays) {
  using Reduction = GradientReduction;
  for (const auto& [reduction, on_host] : {std::pair{Reduction::sum, false},
                                           {Reduction::mean, false},
                                           {Reduction::mean_sum, false},
                                           {Reduction::sum, true},
                                           {Reduction::mean, true},
                                           {Reduction::mean_sum, true}}) {
    for (const std::int32_t ranks : {1, 2, 3}) {
      const std::vector<Device*> devices(static_cast<std::size_t>(ranks), &device_);
      collectives::ThreadsGroup group(devices, clock_, {});
      cluster::ThreadsModelStore models(devices, clock_, {});
      run_ranks(ranks, [&](std::int32_t rank) {
        Rank made = make(group, models, rank, reduction);
        const std::unique_ptr<Stream> stream = device_.make_stream();
        auto fixed = std::make_unique<FixedGradients>(rank);
        const FixedGradients& on_device = *fixed;
        std::unique_ptr<Executable> executable = std::move(fixed);
        if (on_host) {
          auto weights = std::make_unique<updates::HostWeights>(std::move(executable), device_);
          updates::copy(weights->parameters().weights, weights->on_device().weights, *stream);
          made.strategy = updates::update_on_host({*weights, device_, device_, *made.optimizer},
                                                  std::move(made.strategy));
          executable = std::move(weights);
        }
        StepResult result;
        made.strategy->start(*executable, *stream);
        made.strategy->finish_step(*executable, *stream, result);
        // All ranks start at rank 0's -1. Gradients of ranks 1..n sum to n (n + 1) / 2; the mean of
        // one process is over all ranks. At most half of another rank's lead is mixed in.
        const double all = ranks * (ranks + 1) / 2., own = rank + 1;
        double factor = own, most = own;
        if (entry().agreement == Agreement::identical) {
          factor = most = reduction == GradientReduction::sum ? all : all / ranks;
        }
        if (entry().agreement == Agreement::mixed) most = own + (all - own) / 2;
        for (std::size_t i = 0; i < 3; ++i) {
          const double scale = std::pow(10., static_cast<double>(i));
          const float high = static_cast<float>(-1 - scale * factor);
          const float low = static_cast<float>(-1 - scale * most);
          const float weight = on_device.weights()[i];
          constexpr float kRounding = 4 * 0x1p-24F;
          EXPECT_LE(weight, high + kRounding * std::abs(high)) << where(ranks, rank, i);
          EXPECT_GE(weight, low - kRounding * std::abs(low)) << where(ranks, rank, i);
        }
      });
    }
  }
}

class RelaxedUpdate : public UpdateContract {};

TEST_P(RelaxedUpdate, AppliesTheGradientsOfTheStepBefore) {
  const std::vector<Device*> devices(1, &device_);
  collectives::ThreadsGroup group(devices, clock_, {});
  cluster::ThreadsModelStore models(devices, clock_, {});
  const Rank made = make(group, models, 0, GradientReduction::sum,
                         parse_component(std::string(entry().name) + ":consistency=relaxed"));
  const std::unique_ptr<Stream> stream = device_.make_stream();
  FixedGradients executable(0);
  StepResult result;
  made.strategy->start(executable, *stream);
  made.strategy->finish_step(executable, *stream, result);
  EXPECT_EQ(executable.weights(), (std::vector<float>{-1, -1, -1}));
  made.strategy->finish_step(executable, *stream, result);
  EXPECT_EQ(executable.weights(), (std::vector<float>{-2, -11, -101}));
}

TEST_P(UpdateContract, ARankThatEndsEarlyEndsAll) {
  Device* const devices[] = {&device_, &device_};
  std::stop_source stop;
  collectives::ThreadsGroup group(devices, clock_, stop.get_token());
  cluster::ThreadsModelStore models(devices, clock_, stop.get_token());
  std::future<bool> other = std::async(std::launch::async, [&] {
    const Rank made = make(group, models, 0, GradientReduction::mean);
    const std::unique_ptr<Stream> stream = device_.make_stream();
    FixedGradients executable(0);
    StepResult result;
    try {
      made.strategy->finish_step(executable, *stream, result);
      return entry().agreement !=
             Agreement::identical;  // only updates that need no other rank may succeed
    } catch (const Error&) {
      return true;
    }
  });
  stop.request_stop();
  ASSERT_EQ(other.wait_for(5s), std::future_status::ready);
  EXPECT_TRUE(other.get());
}

std::vector<const UpdateEntry*> entries() {
  return {update_table().entries.begin(), update_table().entries.end()};
}
std::vector<const UpdateEntry*> entries_with_consistency() {
  std::vector<const UpdateEntry*> all = entries();
  std::erase_if(all, [](const UpdateEntry* entry) {
    return std::ranges::find(entry->options, "consistency", &OptionSpec::name) ==
           entry->options.end();
  });
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, RelaxedUpdate, ::testing::ValuesIn(entries_with_consistency()),
                         [](const auto& test) { return test_name(test.param->name); });
INSTANTIATE_TEST_SUITE_P(All, UpdateContract, ::testing::ValuesIn(entries()),
                         [](const auto& test) { return test_name(test.param->name); });

}  // namespace
}  // namespace penstock
