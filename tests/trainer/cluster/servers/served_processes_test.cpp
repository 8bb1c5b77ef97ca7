// SPDX-License-Identifier: Apache-2.0
// Tests parameter servers and workers as processes over TCP: the workers' weights after some steps
// of a quadratic, against ranks of one process and against the update's definition.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>

#include "tests/support/reserved_port.h"
#include "tests/support/update_ranks.h"
#include "trainer/cluster/servers/connection.h"
#include "trainer/cluster/servers/server.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr std::int32_t kSteps = 6;

/// An address without a listener.
std::string free_address() { return "127.0.0.1:" + ReservedPort().text(); }

/// The results that a worker leaves for the test.
struct Leavings {
  float weights[kQuadraticElements];
  std::int64_t counters;  ///< sum of the histogram of staleness
};

class ServedProcesses : public ::testing::Test {
 protected:
  ServedProcesses()
      : leavings_(static_cast<Leavings*>(mmap(nullptr, 8 * sizeof(Leavings), PROT_READ | PROT_WRITE,
                                              MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~ServedProcesses() override { munmap(leavings_, 8 * sizeof(Leavings)); }

  /// Trains in that number of processes. Expects that all of them end by themselves with exit code
  /// 0.
  void train(std::int32_t servers, std::int32_t workers, const std::string& update,
             GradientReduction reduction = GradientReduction::mean,
             const std::string& optimizer = "sgd") {
    cluster::Cluster cluster{.ps_hosts = {}, .worker_hosts = {}, .program = "a test"};
    for (std::int32_t i = 0; i < servers; ++i) cluster.ps_hosts.push_back(free_address());
    for (std::int32_t i = 0; i < workers; ++i) {
      cluster.worker_hosts.push_back(std::string("127.0.0.1:").append(std::to_string(i + 1)));
    }
    std::vector<pid_t> children;
    for (std::int32_t task = 0; task < servers; ++task) {
      children.push_back(start([&] { return serve(cluster, task); }));
    }
    for (std::int32_t task = 0; task < workers; ++task) {
      children.push_back(start([&] { return work(cluster, task, update, reduction, optimizer); }));
    }
    for (const pid_t child : children) {
      int status = -1;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
  }
  std::vector<float> weights(std::int32_t worker) const {
    const Leavings& left = leavings_[worker];
    return {left.weights, left.weights + kQuadraticElements};
  }
  /// Expects that all workers have the same bits as ranks of one process.
  void expect_as_in_one_process(std::int32_t workers, const std::string& update,
                                GradientReduction reduction = GradientReduction::mean,
                                const std::string& optimizer = "sgd") {
    SteadyClock clock;
    UpdateRanks reference(workers, update, clock, reduction, optimizer);
    reference.steps(kSteps);
    for (std::int32_t worker = 0; worker < workers; ++worker) {
      EXPECT_EQ(weights(worker), reference.weights(0)) << "worker " << worker;
    }
  }

  Leavings* const leavings_;

 private:
  template <typename Body>
  static pid_t start(const Body& body) {
    const pid_t child = fork();
    if (child != 0) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(40);
    int code = 1;
    try {
      code = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    std::_Exit(code);
  }
  static int serve(const cluster::Cluster& cluster, std::int32_t task) {
    SteadyClock clock;
    const cluster::Served served = cluster::serve_parameters(
        {.cluster = cluster, .task = task, .patience = {.rendezvous = 30s, .silence = 20s}}, clock,
        [](const std::string& sentence) { std::fprintf(stderr, "%s\n", sentence.c_str()); }, {});
    if (!served.failure.empty()) std::fprintf(stderr, "%s\n", served.failure.c_str());
    return served.failure.empty() && served.rejected == 0 ? 0 : 1;
  }
  int work(const cluster::Cluster& cluster, std::int32_t task, const std::string& update,
           GradientReduction reduction, const std::string& optimizer_name) {
    SteadyClock clock;
    cluster::ServerConnection servers({.cluster = cluster,
                                       .task = task,
                                       .optimizer = optimizer_name,
                                       .rendezvous = 30s,
                                       .silence = 20s},
                                      clock);
    HostDevice device(clock);
    Device* const devices[] = {&device};
    collectives::ThreadsGroup group(devices, clock, {});
    const std::unique_ptr<Collective> collective = group.join(0);
    const ComponentText text = parse_component(update);
    const UpdateEntry& entry = find_entry(update_table(), text.name);
    const Options options(entry.name, entry.options, text);
    const OptimizerEntry& rule = find_entry(optimizer_table(), optimizer_name);
    const Options rule_options(rule.name, rule.options, {});
    const auto optimizer = make_host_optimizer({rule, rule_options}, serial_for);
    const auto hyper = [](std::int64_t step) {
      return Hyper{.learning_rate = UpdateRanks::kRate, .step = step};
    };
    Probe probe;
    Quadratic model(task);
    const std::unique_ptr<Stream> stream = device.make_stream();
    {
      const auto strategy = entry.make_served({.collective = *collective,
                                               .optimizer = *optimizer,
                                               .reduction = reduction,
                                               .options = options,
                                               .device = &device,
                                               .probe = &probe},
                                              {servers, hyper});
      optimizer->prepare(model.parameters());
      strategy->start(model, *stream);
      for (std::int32_t step = 0; step < kSteps; ++step) {
        StepResult result;
        optimizer->set(hyper(step), *stream);
        const GradientReady ready = strategy->gradient_ready(*stream);
        model.run(Phase::train, {}, *stream, ready, result);
        if (ready) {  // every second worker's gradients become ready in reverse order
          const std::size_t count = model.parameters().parameters.size();
          for (std::size_t i = 0; i < count; ++i) ready(task % 2 == 0 ? i : count - 1 - i);
        }
        strategy->finish_step(model, *stream, result);
      }
    }
    std::copy(model.weights().begin(), model.weights().end(), leavings_[task].weights);
    for (const auto& [name, count] : probe.values()) leavings_[task].counters += count;
    return 0;
  }
};

TEST_F(ServedProcesses, TogetherIsASingleReplicaOnTheGlobalBatch) {
  for (const auto& [servers, workers] : {std::pair(1, 1), std::pair(1, 3), std::pair(2, 2)}) {
    SCOPED_TRACE(std::to_string(servers) + " servers, " + std::to_string(workers) + " workers");
    train(servers, workers, "parameter_server");
    expect_as_in_one_process(workers, "replicated");
  }
  // That definition: gradient descent on the mean of all gradients, here of two workers.
  for (std::size_t element = 0; element < kQuadraticElements; ++element) {
    double w = quadratic_start(0, element);
    for (std::int32_t step = 0; step < kSteps; ++step) {
      double sum = 0;
      for (const std::int32_t worker : {0, 1}) sum += quadratic_gradient(w, worker, step, element);
      w -= UpdateRanks::kRate * sum / 2;
    }
    EXPECT_NEAR(weights(1)[element], w, 1e-5) << element;
  }
}

TEST_F(ServedProcesses, OptimizersAndReductionsAreTheRuns) {
  train(2, 2, "parameter_server", GradientReduction::sum, "momentum");
  expect_as_in_one_process(2, "replicated", GradientReduction::sum, "momentum");
  train(1, 2, "parameter_server", GradientReduction::mean, "adam");
  expect_as_in_one_process(2, "replicated", GradientReduction::mean, "adam");
}

TEST_F(ServedProcesses, PlacementAndPartsChangeNoBit) {
  for (const std::string options : {"placement=first", "placement=greedy", "placement=split",
                                    "placement=split,part_bytes=8", "part_bytes=4"}) {
    SCOPED_TRACE(options);
    train(2, 2, "parameter_server:" + options);
    expect_as_in_one_process(2, "replicated");
  }
}

TEST_F(ServedProcesses, StagedReadsWeightsOneUpdateOld) {
  train(2, 3, "parameter_server:staged=true");
  expect_as_in_one_process(3, "parameter_server:staged=true");
}

TEST_F(ServedProcesses, TfSyncAppliesEachWorkersGradients) {
  for (const std::string update : {"parameter_server:sync=tf", "distributed_replicated"}) {
    SCOPED_TRACE(update);
    train(2, 3, update);
    for (std::size_t element = 0; element < kQuadraticElements; ++element) {
      double w = quadratic_start(0, element);
      for (std::int32_t step = 0; step < kSteps; ++step) {
        double sum = 0;
        for (const std::int32_t worker : {0, 1, 2}) {
          sum += quadratic_gradient(w, worker, step, element);
        }
        w -= UpdateRanks::kRate * sum;
      }
      for (const std::int32_t worker : {0, 1, 2}) {
        EXPECT_NEAR(weights(worker)[element], w, 1e-4 * (1 + std::abs(w))) << element;
      }
    }
  }
}

TEST_F(ServedProcesses, AsynchronousIsPlainDescentWhereAWorkerIsAlone) {
  train(2, 1, "parameter_server:sync=false");
  expect_as_in_one_process(1, "replicated");
  EXPECT_EQ(leavings_[0].counters, kSteps);
  train(1, 3, "parameter_server:sync=false");
  for (const std::int32_t worker : {0, 1, 2}) EXPECT_EQ(leavings_[worker].counters > 0, true);
}

TEST_F(ServedProcesses, BytePsHasTheBitsOfReplicated) {
  for (const std::string options :
       {"", ":partition_bytes=4", ":partition_bytes=12,credit_bytes=4", ":credit_bytes=0"}) {
    SCOPED_TRACE("byteps" + options);
    train(2, 3, "byteps" + options, GradientReduction::mean, "momentum");
    expect_as_in_one_process(3, "replicated", GradientReduction::mean, "momentum");
  }
}

}  // namespace
}  // namespace penstock
