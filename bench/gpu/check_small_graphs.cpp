// SPDX-License-Identifier: Apache-2.0
// The verb graphs: runs the backend on every small graph and compares it with plain loops in
// double.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <span>
#include <string>
#include <string_view>

#include "bench/gpu/check_report.h"
#include "bench/gpu/workbench.h"
#include "dataflow/error.h"
#include "tests/support/executable_fixture.h"
#include "tests/support/small_graphs.h"
#include "tests/support/tolerance.h"
#include "trainer/backends/gpu/backend.h"

namespace penstock::gpu {
namespace {

constexpr std::uint64_t kWeightSeed = 3;
constexpr std::int64_t kStep = 9;

/// Does not time engines: that would take longer than all checks together.
/// `fused`: convolutions take over the batch norms around them if an engine exists.
std::shared_ptr<Backend> backend_for(const CheckSettings& settings, bool fused) {
  const ComponentText text{"gpu",
                           {{"fused", fused ? "on" : "off"},
                            {"autotune", "false"},
                            {"deterministic", fused ? "false" : "true"}}};
  return std::make_shared<GpuBackend>(library_for(settings), Options("gpu", kOptions, text));
}

/// A precision, and whether its convolutions are fused.
struct Way {
  std::string_view name;
  Precision precision;
  bool fused = false;
};
constexpr std::array<Way, 5> kWays{{{"fp16", Precision::f16},
                                    {"fp16_fused", Precision::f16, true},
                                    {"fp32", Precision::f32},
                                    {"tf32", Precision::tf32},
                                    {"bf16", Precision::bf16}}};

/// Largest distance of any tensor, relative to the tensors' scales.
double worst_of(const PlainTensors& found, const PlainTensors& expected) {
  const std::vector<double> scales = scales_of(expected);
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = distance(found[i], expected[i]) / (scales[i] + 1e-30);
    if (!(error <= worst)) worst = std::isnan(error) ? INFINITY : error;
  }
  return worst;
}

/// Chance decides which ReLUs and maxima are near a tie, and each seed draws new batches. Of two
/// hundred batches, a few exceed the tolerance for one batch by a little.
Tolerance doubled(const Tolerance& tolerance) {
  return {2 * tolerance.forward, 2 * tolerance.gradient};
}

class GraphCheck {
 public:
  GraphCheck(const CheckSettings& settings, const SmallGraph& small, const Way& way)
      : same_bits_(!way.fused),
        graph_(small.graph),
        weights_(uneven_weights(small.graph, kWeightSeed)),
        batch_(
            random_batch(small.graph.input_shape(), small.images, small.classes(), settings.seed)),
        tolerance_(doubled(tolerance_for(small.graph, small.images, way.precision))),
        compiled_(backend_for(settings, way.fused), 0, small.graph,
                  spec_for(small.graph, small.images, way.precision)) {
    compiled_.set_weights(weights_);
  }

  /// Returns an empty string if the results are right, else the reason.
  std::string run(std::map<std::string, double>& figures) {
    const PlainStep evaluated =
        run_plain(graph_, weights_, batch_, {.phase = Phase::evaluate, .step = kStep});
    std::string failure =
        judge_loss("evaluation", compiled_.run(Phase::evaluate, batch_), evaluated);
    compiled_.executable().set_step(kStep);
    const StepResult result = compiled_.run(Phase::train, batch_);
    const PlainTensors gradients = compiled_.gradients();
    const PlainStep expected = run_plain(graph_, weights_, batch_, {.step = kStep});
    failure += judge_loss("training", result, expected);
    figures["gradient_error"] = worst_of(gradients, expected.gradients);
    figures["statistics_error"] = worst_of(compiled_.buffers(), expected.buffers);
    if (!(figures["gradient_error"] <= tolerance_.gradient)) {
      failure += fmt::format(" gradients may be off by {:.3g};", tolerance_.gradient);
    }
    if (!(figures["statistics_error"] <= tolerance_.forward)) {
      failure += fmt::format(" running statistics may be off by {:.3g};", tolerance_.forward);
    }
    compiled_.executable().set_step(kStep);
    const StepResult again = compiled_.run(Phase::train, batch_, 1);
    if ((same_bits_ && again.loss != result.loss) || !repeats(gradients)) {
      failure += " the same step again has other results;";
    }
    return failure + judge_recording(gradients);
  }

 private:
  /// Convolutions with sums over channels add in any order.
  bool repeats(const PlainTensors& gradients) {
    const PlainTensors again = compiled_.gradients();
    return same_bits_ ? again == gradients : worst_of(again, gradients) <= tolerance_.gradient;
  }
  std::string judge_loss(std::string_view phase, const StepResult& result,
                         const PlainStep& expected) const {
    double largest = 1;
    for (const double logit : expected.logits) largest = std::max(largest, std::abs(logit));
    if (std::abs(result.loss - expected.loss) <= tolerance_.forward * largest) return {};
    return fmt::format(" loss in {} is {:.6g}, exact is {:.6g};", phase, result.loss,
                       expected.loss);
  }

  /// A recorded step that is launched twice must compute the same as the step itself.
  std::string judge_recording(const PlainTensors& gradients) {
    Device& device = compiled_.device();
    Stream& stream = compiled_.stream();
    const auto from_pixels = std::as_bytes(std::span(batch_.pixels));
    const auto from_labels = std::as_bytes(std::span(batch_.labels));
    const Buffer pixels = device.allocate(from_pixels.size(), MemoryKind::device);
    const Buffer labels = device.allocate(from_labels.size(), MemoryKind::device);
    stream.copy(pixels.bytes(), from_pixels);
    stream.copy(labels.bytes(), from_labels);
    const Batch view{pixels.bytes(),
                     {reinterpret_cast<std::int32_t*>(labels.bytes().data()), batch_.labels.size()},
                     batch_.valid};
    const std::unique_ptr<Program> program = stream.capture(
        [&] { compiled_.executable().run(Phase::train, view, stream, {}, compiled_.result()); });
    for (int launch = 0; launch < 2; ++launch) {
      compiled_.executable().set_step(kStep);
      program->launch(stream);
      compiled_.wait();
      if (!repeats(gradients)) {
        return fmt::format(" launch {} of the recorded step has other results;", launch + 1);
      }
    }
    return {};
  }

  const bool same_bits_;
  const Graph graph_;
  const PlainWeights weights_;
  const PlainBatch batch_;
  const Tolerance tolerance_;
  CompiledGraph compiled_;
};

void check(const std::string& name, const SmallGraph& small, const Way& way,
           const CheckSettings& settings, CheckReport& report) {
  std::map<std::string, double> figures;
  try {
    const std::string failure = GraphCheck(settings, small, way).run(figures);
    report.add(name, failure.empty() ? Verdict::pass : Verdict::fail, figures, failure);
  } catch (const Unavailable& error) {
    report.add(name, way.precision == Precision::f32 ? Verdict::fail : Verdict::skip, figures,
               error.what());
  } catch (const DeviceError& error) {
    report.add(name, Verdict::fail, figures, error.what());
    expect_alive(*open_driver(settings), error);
  } catch (const std::exception& error) {
    report.add(name, Verdict::fail, figures, error.what());
  }
}

}  // namespace

void check_small_graphs(const CheckSettings& settings, CheckReport& report) {
  library_for(settings)->device_count();  // throws if there is none
  const std::vector<SmallGraph> graphs = small_graphs();
  for (const Way& way : kWays) {
    for (const SmallGraph& small : graphs) {
      const std::string name = fmt::format("{} {}", way.name, small.name);
      if (report.wants(name)) check(name, small, way, settings, report);
    }
  }
}

}  // namespace penstock::gpu
