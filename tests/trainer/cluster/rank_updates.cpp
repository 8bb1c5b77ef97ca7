// SPDX-License-Identifier: Apache-2.0
// One process of several that mpirun or start_ranks.py starts, with a given number of ranks. It
// runs every update against its definition, and exits with 0 if all weights are right.
//
//   mpirun -np 3 rank_updates [RANKS IN EACH PROCESS [links]]
//
// With `links` the processes exchange in messages, as on several hosts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "tests/support/mpi_rank.h"
#include "tests/support/product_model.h"
#include "tests/support/update_definitions.h"
#include "trainer/cluster/processes.h"
#include "trainer/cluster/servers/process_models.h"
#include "trainer/collectives/nested.h"
#include "trainer/collectives/threads.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

class Checks {
 public:
  Checks(cluster::Processes& processes, Clock& clock, std::int32_t threads,
         collectives::ExchangeMethod method)
      : processes_(processes),
        clock_(clock),
        threads_(threads),
        device_(clock),
        devices_(static_cast<std::size_t>(threads), &device_),
        between_(processes.make_group({.device = device_,
                                       .patience = 20s,
                                       .stopping = {},
                                       .abandon = {},
                                       .choice = {.method = method}})),
        across_(between_->join(processes.launch().rank)),
        group_(threads > 1
                   ? std::make_unique<collectives::ThreadsGroup>(devices_, clock, std::stop_token())
                   : nullptr,
               devices_, *across_) {}

  int run() {
    for (const GradientReduction reduction :
         {GradientReduction::sum, GradientReduction::mean, GradientReduction::mean_sum}) {
      for (const DefinedUpdate& update : defined_updates()) {
        follows(update, reduction);
        oracle(update, reduction);
      }
    }
    for (const char* peer : {"uniform", "kungfu", "round-robin"}) {
      for (const char* prefetch : {"false", "true"}) {
        averages_in_pairs(fmt::format("async-sgd:peer={},prefetch={}", peer, prefetch));
      }
    }
    return failures_ == 0 ? 0 : 1;
  }

 private:
  std::int32_t process() const { return processes_.launch().rank; }
  std::int32_t ranks() const { return processes_.launch().size * threads_; }
  std::int32_t first() const { return process() * threads_; }

  void expect(bool right, const std::string& what) {
    if (right) return;
    ++failures_;
    fmt::print(stderr, "process {} of {}: {} is wrong\n", process(), processes_.launch().size,
               what);
  }

  void follows(const DefinedUpdate& update, GradientReduction reduction) {
    const DefinedRun defined{.ranks = ranks(), .local_ranks = threads_, .reduction = reduction};
    UpdateRanks run({group_, nullptr, first(), threads_}, update.update, clock_, reduction);
    run.steps(static_cast<std::int32_t>(defined.steps));
    for (std::size_t element = 0; element < kQuadraticElements; ++element) {
      const RankValues expected = follow(defined, element, update.make);
      for (std::int32_t rank = first(); rank < first() + threads_; ++rank) {
        const double exact = expected[static_cast<std::size_t>(rank)];
        const double weight = run.weights(rank)[element];
        expect(
            std::abs(weight - exact) <= 2e-6 * (1 + std::abs(exact)),
            fmt::format("{} with reduction {}, rank {}, element {}: {} instead of {}",
                        update.update, static_cast<int>(reduction), rank, element, weight, exact));
      }
    }
    if (update.identical) have_the_same_bits(run, update.update);
  }

  void have_the_same_bits(UpdateRanks& run, const std::string& update) {
    std::string mine;
    for (std::int32_t rank = first(); rank < first() + threads_; ++rank) {
      mine.append(reinterpret_cast<const char*>(run.weights(rank).data()),  // NOLINT
                  run.weights(rank).size() * sizeof(float));
    }
    for (const std::string& other : processes_.all_gather(mine, 20s, "comparing weights")) {
      expect(other == mine, update + ": the bits of another rank");
    }
  }

  /// tf_cnn_benchmarks' test of its modes: x = 1 and a rate of 1/8. The losses are exact for
  /// gradients that count once or twice; for other multiples they follow the recursion.
  void oracle(const DefinedUpdate& update, GradientReduction reduction) {
    double multiplier = update.identical ? ranks() : 1;
    if (update.identical && reduction == GradientReduction::mean) multiplier = 1;
    if (update.identical && reduction == GradientReduction::mean_sum) multiplier /= threads_;
    const bool late = update.update.find("staged=true") != std::string::npos ||
                      update.update.find("relaxed") != std::string::npos;
    if (late) return;  // `follows` tests their recursions
    const ProductLosses expected = product_losses(multiplier, 0.125, 3);
    run_ranks(threads_, [&](std::int32_t thread) {
      const auto losses = train_product(group_, device_, first() + thread, threads_, update.update,
                                        reduction, 0.125, 3);
      for (std::size_t step = 0; step < expected.size(); ++step) {
        const bool exact = multiplier <= 2 && (ranks() & (ranks() - 1)) == 0;
        const double tolerance = exact ? 0 : 1e-6 * std::abs(expected[step]) + 1e-6;
        if (std::abs(losses[step] - expected[step]) > tolerance) {
          throw Error(fmt::format("{} with reduction {}: loss {} of step {}, instead of {}",
                                  update.update, static_cast<int>(reduction), losses[step], step,
                                  expected[step]));
        }
      }
    });
  }

  /// The order of steps is unknown. The test expects that every rank ends, that its model is one
  /// that such averages can reach and contains parts of other models, and that every read was
  /// counted.
  void averages_in_pairs(const std::string& update) {
    constexpr std::int32_t kSteps = 60;
    Probe counters;
    std::stop_source done;
    const auto models = cluster::make_process_models({.processes = processes_,
                                                      .devices = devices_,
                                                      .clock = clock_,
                                                      .probe = counters,
                                                      .patience = 20s,
                                                      .stopping = {},
                                                      .abandon = done.get_token()});
    {
      UpdateRanks run({group_, models.get(), first(), threads_}, update, clock_);
      run.steps(kSteps);
      std::int64_t reads = 0;
      for (const auto& [name, count] : run.probe().values()) reads += count;
      expect(reads == kSteps * threads_, fmt::format("{}: {} reads", update, reads));
      for (std::int32_t rank = first(); rank < first() + threads_; ++rank) {
        bool mixed = false;
        for (std::size_t element = 0; element < kQuadraticElements; ++element) {
          // Averages of contractions towards targets stay in the range of targets and initial
          // weights.
          const double weight = run.weights(rank)[element];
          const double low = -1.01, high = std::max(3.3, 1.5 * (ranks() - 1)) + 0.01;
          expect(weight > low && weight < high, fmt::format("{}: a weight of {}", update, weight));
          const DefinedRun alone{.ranks = ranks(), .local_ranks = threads_, .steps = kSteps};
          const RankValues unmixed = follow(alone, element, define_independent);
          mixed |= std::abs(weight - unmixed[static_cast<std::size_t>(rank)]) > 1e-3;
        }
        // Middle ranks have neighbours on both sides, whose influences may cancel.
        const bool outermost = rank == 0 || rank == ranks() - 1;
        expect(mixed || !outermost, update + ": a model without others' share");
      }
      // No process's server may end while another process takes a step; models read ahead are not
      // used.
      processes_.all_gather("", 20s, "ending pair averaging");
      done.request_stop();
    }
    expect(counters.values().at("model_requests_refused") == 0, update + ": requests refused");
  }

  cluster::Processes& processes_;
  Clock& clock_;
  const std::int32_t threads_;
  HostDevice device_;
  std::vector<Device*> devices_;
  std::unique_ptr<CollectiveGroup> between_;
  std::unique_ptr<Collective> across_;
  collectives::NestedGroup group_;
  int failures_ = 0;
};

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  return penstock::run_as_rank(
      [&](penstock::cluster::Processes& processes, penstock::Clock& clock) {
        using Method = penstock::collectives::ExchangeMethod;
        return penstock::Checks(processes, clock, argc > 1 ? std::atoi(argv[1]) : 1,
                                argc > 2 ? Method::links : Method::fastest)
            .run();
      });
}
