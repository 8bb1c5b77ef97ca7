// SPDX-License-Identifier: Apache-2.0
// Tests the smallest training run, with which tf_cnn_benchmarks tests its update modes: images of
// one pixel x, loss x A B, A = 1 and B = 2 at first, plain gradient descent. Every update with
// every reduction must have the losses that a recursion of two numbers predicts, unless they depend
// on the speed of the ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "dataflow/host_device.h"
#include "tests/support/entry_names.h"
#include "tests/support/product_model.h"
#include "tests/support/rank_threads.h"
#include "trainer/collectives/threads.h"
#include "trainer/replica.h"

namespace penstock {
namespace {

constexpr float kA = ProductModel::kA, kB = ProductModel::kB;

/// The pixels of each rank's image in one step.
using Pixels = std::vector<std::vector<std::uint8_t>>;  // [step][rank]

struct Case {
  const UpdateEntry* update;
  GradientReduction reduction;
  double learning_rate;
};

/// The losses [step][rank] of a real run: rings, replicas and the collective, one thread per rank.
class TrainingRun {
 public:
  TrainingRun(const Case& of, const Pixels& pixels) : case_(of), pixels_(pixels) {
    const auto ranks = static_cast<std::int32_t>(pixels.front().size());
    losses_.assign(pixels.size(), std::vector<double>(pixels.front().size()));
    const std::vector<Device*> devices(pixels.front().size(), &device_);
    collectives::ThreadsGroup group(devices, clock_, {});
    run_ranks(ranks, [&](std::int32_t rank) { run_rank(group, rank); });
  }
  const std::vector<std::vector<double>>& losses() const { return losses_; }

 private:
  static constexpr std::size_t kSlots = 2;

  void run_rank(collectives::ThreadsGroup& group, std::int32_t rank) {
    const Options none("update", {}, {});
    const Options update_options(case_.update->name, case_.update->options, {});
    const std::unique_ptr<Collective> collective = group.join(rank);
    const auto optimizer =
        make_host_optimizer({find_entry(optimizer_table(), "sgd"), none}, serial_for);
    const auto update = case_.update->make({.collective = *collective,
                                            .optimizer = *optimizer,
                                            .reduction = case_.reduction,
                                            .local_ranks = collective->world().size,
                                            .options = update_options,
                                            .device = &device_});
    // Ranks begin with different weights; rank 0's weights must replace the others'.
    ProductModel model(kA + 10 * static_cast<float>(rank), kB);
    Device* const reader = &device_;
    BatchRing ring({.images = 1, .image = {1, 1, 1}, .classes = 1}, kSlots, device_,
                   MemoryKind::device, std::span(&reader, 1), Order::strict, clock_);
    const auto rate = static_cast<float>(case_.learning_rate);
    Replica replica(ring, device_,
                    {.executable = model,
                     .optimizer = *optimizer,
                     .update = *update,
                     .hyper = [rate](std::int64_t) { return Hyper{.learning_rate = rate}; }},
                    Phase::train, clock_);
    replica.start();
    for (std::size_t first = 0; first < pixels_.size(); first += kSlots) {
      const std::size_t steps = std::min(kSlots, pixels_.size() - first);
      for (std::size_t step = first; step < first + steps; ++step) publish(ring, step, rank);
      Leg leg;
      ASSERT_EQ(replica.run(steps, leg, {}, {}), Replica::Ending::completed);
      for (std::size_t step = 0; step < steps; ++step) {
        losses_[first + step][static_cast<std::size_t>(rank)] = leg.steps[step].result.loss;
      }
    }
  }
  void publish(BatchRing& ring, std::size_t step, std::int32_t rank) const {
    WriteLease lease = ring.acquire({});
    lease.batch().pixels[0] = std::byte{pixels_[step][static_cast<std::size_t>(rank)]};
    lease.batch().labels[0] = 0;
    lease.batch().valid = 1;
    std::move(lease).publish();
  }

  const Case case_;
  const Pixels& pixels_;
  SteadyClock clock_;
  HostDevice device_{clock_};
  std::vector<std::vector<double>> losses_;
};

/// The same losses from two numbers per rank, without any of Penstock's code.
std::vector<std::vector<double>> recursion(const Case& of, const Pixels& pixels) {
  const std::size_t ranks = pixels.front().size();
  std::vector<double> a(ranks, kA), b(ranks, kB);
  std::vector<std::vector<double>> losses;
  for (const std::vector<std::uint8_t>& x : pixels) {
    losses.emplace_back();
    double sum = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      losses.back().push_back(x[rank] * a[rank] * b[rank]);
      sum += x[rank];
    }
    const auto mean = [&](const std::vector<double>& of_ranks) {
      return std::accumulate(of_ranks.begin(), of_ranks.end(), 0.) / static_cast<double>(ranks);
    };
    const double share = of.update->name == "sma" ? 0.1 : 0, mean_a = mean(a), mean_b = mean(b);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      double gradient = x[rank];
      if (of.update->agreement == Agreement::identical) {
        // All ranks are in one process, so mean_sum is the mean.
        const bool sums = of.reduction == GradientReduction::sum;
        gradient = sums ? sum : sum / static_cast<double>(ranks);
      }
      const double da = gradient * b[rank], db = gradient * a[rank];
      a[rank] += share * (mean_a - a[rank]) - of.learning_rate * da;
      b[rank] += share * (mean_b - b[rank]) - of.learning_rate * db;
    }
  }
  return losses;
}

class OneByOne : public ::testing::TestWithParam<const UpdateEntry*> {};

TEST_P(OneByOne, LossesFollowTheRecursionOfTwoNumbers) {
  for (const GradientReduction reduction :
       {GradientReduction::sum, GradientReduction::mean, GradientReduction::mean_sum}) {
    for (const std::size_t ranks : {1U, 2U, 3U}) {
      Pixels pixels(9, std::vector<std::uint8_t>(ranks));
      for (std::size_t step = 0; step < pixels.size(); ++step) {
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          pixels[step][rank] = static_cast<std::uint8_t>(1 + (3 * step + 5 * rank) % 7);
        }
      }
      const Case of{GetParam(), reduction, 0x1p-10};
      const auto losses = TrainingRun(of, pixels).losses();
      const auto expected = recursion(of, pixels);
      for (std::size_t step = 0; step < pixels.size(); ++step) {
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          // A handful of f32 roundings per step.
          const double tolerance = 8 * 0x1p-24 * static_cast<double>(step + 1);
          EXPECT_NEAR(losses[step][rank], expected[step][rank], tolerance * expected[step][rank])
              << ranks << " ranks, rank " << rank << ", step " << step;
        }
      }
    }
  }
}

/// With x = 1 everywhere and a rate of 1/8, every number is a short binary fraction and therefore
/// exact. A step with the sum over two ranks is twice as long.
TEST_P(OneByOne, AGradientSummedOverTwoRanksCountsTwice) {
  const Pixels pixels(3, std::vector<std::uint8_t>(2, 1));
  const std::vector<double> once{2, 1.40625, 0.91845703125}, twice{2, 0.875, 0.1015625};
  const bool sums = GetParam()->agreement == Agreement::identical;
  for (const GradientReduction reduction :
       {GradientReduction::sum, GradientReduction::mean, GradientReduction::mean_sum}) {
    const auto losses = TrainingRun({GetParam(), reduction, 0.125}, pixels).losses();
    const std::vector<double>& expected =
        sums && reduction == GradientReduction::sum ? twice : once;
    for (std::size_t step = 0; step < pixels.size(); ++step) {
      EXPECT_EQ(losses[step], std::vector<double>(2, expected[step])) << "step " << step;
    }
  }
}

std::vector<const UpdateEntry*> entries() {
  std::vector<const UpdateEntry*> entries;
  for (const UpdateEntry* entry : update_table().entries) {
    if (entry->agreement != Agreement::mixed) entries.push_back(entry);
  }
  return entries;
}
INSTANTIATE_TEST_SUITE_P(All, OneByOne, ::testing::ValuesIn(entries()),
                         [](const auto& test) { return test_name(test.param->name); });

}  // namespace
}  // namespace penstock
