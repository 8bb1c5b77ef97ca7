// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/dnn_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <variant>

#include "dataflow/error.h"
#include "tests/support/gpu/accesses.h"
#include "tests/support/gpu/dnn_interpreter.h"
#include "trainer/backends/gpu/device.h"

namespace penstock::gpu {
namespace {

constexpr std::size_t kMostWorkspace = std::size_t{256} << 20;

struct Operand {
  std::size_t tensor = 0;
  bool written = false;
  Bytes before{}, expected{};  ///< expected: for tensors that are written
};

/// The operands of a check and their expected results.
struct Prepared {
  const DnnCheck* check = nullptr;
  std::vector<Operand> operands{};
};

/// True for a convolution that adds to its output: it reads the tensor that it writes.
bool is_blended(const DnnGraph& graph, DnnTensorId id) {
  return std::ranges::any_of(graph.operations, [&](const DnnOperation& operation) {
    if (const auto* forward = std::get_if<DnnConvolution>(&operation)) {
      return forward->y == id && forward->beta != 0;
    }
    const auto* data = std::get_if<DnnConvolutionBackwardData>(&operation);
    return data != nullptr && data->dx == id && data->beta != 0;
  });
}

/// Host addresses by tensor; null for virtual ones.
std::vector<std::byte*> addresses(const DnnGraph& graph, std::vector<Bytes>& memory) {
  std::vector<std::byte*> tensors(graph.tensors.size(), nullptr);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!graph.tensors[i].is_virtual) tensors[i] = memory[i].data();
  }
  return tensors;
}

bool contains(const std::vector<MemoryRange>& ranges, const std::byte* begin) {
  return std::ranges::any_of(ranges,
                             [&](const MemoryRange& range) { return range.begin == begin; });
}

/// Tensors with one value per channel belong to a batch norm: scales and deviations, away from 0.
Bytes random_tensor(const DnnTensor& tensor, Random& random) {
  const bool per_channel = tensor.shape[0] == 1 && tensor.shape[2] * tensor.shape[3] == 1;
  return random_elements(tensor.dtype, tensor.count(), random, per_channel ? 0.5 : -1,
                         per_channel ? 1.5 : 1);
}

Prepared prepare(const DnnCheck& check, std::uint64_t seed) {
  const DnnGraph& graph = check.graph;
  Random random(seed, std::hash<std::string>{}(check.name));
  std::vector<Bytes> memory(graph.tensors.size());
  for (std::size_t i = 0; i < memory.size(); ++i) {
    if (!graph.tensors[i].is_virtual) memory[i] = random_tensor(graph.tensors[i], random);
  }
  const std::vector<std::byte*> tensors = addresses(graph, memory);
  const std::vector<MemoryRange> writes = accesses_of(graph, tensors).writes;
  Prepared prepared{.check = &check};
  for (std::size_t i = 0; i < memory.size(); ++i) {
    if (graph.tensors[i].is_virtual) continue;
    const bool written = contains(writes, tensors[i]);
    if (written && !is_blended(graph, static_cast<DnnTensorId>(i))) {
      std::ranges::fill(memory[i], std::byte{0xff});
    }
    prepared.operands.push_back({i, written, memory[i]});
  }
  interpret(graph, tensors);
  for (Operand& operand : prepared.operands) {
    if (operand.written) operand.expected = std::move(memory[operand.tensor]);
  }
  return prepared;
}

class Runner {
 public:
  Runner(Workbench& bench, const CheckSettings& settings, CheckReport& report)
      : bench_(bench), settings_(settings), report_(report), scratch_(bench, kMostWorkspace) {
    // In a training run, workspaces are not zero either.
    const Bytes dirt = poison(std::min<std::size_t>(kMostWorkspace, std::size_t{16} << 20));
    for (std::size_t done = 0; done < kMostWorkspace; done += dirt.size()) {
      bench.driver().copy(bench.stream(), scratch_.data() + done, dirt.data(), dirt.size());
    }
    bench.wait();
  }

  void run(const Prepared& prepared) {
    const DnnCheck& check = *prepared.check;
    const PlanRules rules{
        .allow_tf32 = check.allow_tf32, .deterministic = false, .workspace_limit = kMostWorkspace};
    const std::vector<Candidate> candidates =
        bench_.driver().planner().candidates(check.graph, rules, settings_.engines);
    if (candidates.empty()) {
      report_.add(check.name, check.may_lack_engine ? Verdict::skip : Verdict::fail, {},
                  "the library has no engine for it");
      return;
    }
    compare(prepared, candidates);
  }

 private:
  void compare(const Prepared& prepared, const std::vector<Candidate>& candidates) {
    double worst = 0;
    std::string failures;
    for (const Candidate& candidate : candidates) {
      const std::string failure = compare(prepared, candidate, worst);
      if (!failure.empty()) {
        failures += fmt::format("{}engine {}: {}", failures.empty() ? "" : "; ",
                                candidate.choice.engine, failure);
      }
    }
    report_.add(prepared.check->name, failures.empty() ? Verdict::pass : Verdict::fail,
                {{"worst_error", worst}, {"engines", static_cast<double>(candidates.size())}},
                failures);
  }

  /// Returns an empty string if the results are right, else the reason.
  std::string compare(const Prepared& prepared, const Candidate& candidate, double& worst) {
    try {
      const auto plan = bench_.driver().build(prepared.check->graph, candidate.choice);
      const std::vector<Bytes> first = execute(prepared, *plan), again = execute(prepared, *plan);
      if (candidate.deterministic && first != again) {
        return "two runs of a deterministic engine differ";
      }
      return judge(prepared, first, worst);
    } catch (const DeviceError& error) {
      expect_alive(bench_.driver(), error);
      return error.what();
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  static std::string judge(const Prepared& prepared, const std::vector<Bytes>& found,
                           double& worst) {
    std::string failure;
    std::size_t next = 0;
    for (const Operand& operand : prepared.operands) {
      if (!operand.written) continue;
      const DType type = prepared.check->graph.tensors[operand.tensor].dtype;
      const double error = distance_of(found[next++], operand.expected, content_of(type));
      worst = std::max(worst, error);
      if (error > prepared.check->tolerance) {
        failure += fmt::format("{}tensor {} is off by {:.3g}, at most {:.3g} is right",
                               failure.empty() ? "" : ", ", operand.tensor, error,
                               prepared.check->tolerance);
      }
    }
    return failure;
  }

  /// The contents of the written operands after a run.
  std::vector<Bytes> execute(const Prepared& prepared, const DnnPlan& plan) {
    std::vector<std::unique_ptr<Block>> blocks;
    std::vector<std::byte*> tensors(prepared.check->graph.tensors.size(), nullptr);
    for (const Operand& operand : prepared.operands) {
      blocks.push_back(std::make_unique<Block>(bench_, operand.before.size()));
      blocks.back()->upload(operand.before);
      tensors[operand.tensor] = blocks.back()->data();
    }
    bench_.driver().execute(bench_.stream(), plan, tensors, scratch_.data());
    bench_.wait();
    std::vector<Bytes> after;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (prepared.operands[i].written) after.push_back(blocks[i]->download());
    }
    return after;
  }

  Workbench& bench_;
  const CheckSettings& settings_;
  CheckReport& report_;
  const Block scratch_;
};

}  // namespace

void check_graphs(const std::vector<DnnCheck>& checks, const CheckSettings& settings,
                  Workbench& bench, CheckReport& report) {
  Runner runner(bench, settings, report);
  const std::size_t ahead = std::max(1U, std::thread::hardware_concurrency());
  std::deque<std::pair<const DnnCheck*, std::future<Prepared>>> waiting;
  const auto run_next = [&] {
    auto [check, prepared] = std::move(waiting.front());
    waiting.pop_front();
    try {
      runner.run(prepared.get());
    } catch (const DeviceLost& error) {
      report.add(check->name, Verdict::fail, {}, error.what());
      throw;
    } catch (const std::exception& error) {
      report.add(check->name, Verdict::fail, {}, error.what());
    }
  };
  for (const DnnCheck& check : checks) {
    if (!report.wants(check.name)) continue;
    waiting.emplace_back(
        &check, std::async(std::launch::async, [&] { return prepare(check, settings.seed); }));
    if (waiting.size() >= ahead) run_next();
  }
  while (!waiting.empty()) run_next();
}

}  // namespace penstock::gpu
