// SPDX-License-Identifier: Apache-2.0
// Applies a rule to the arenas of a host device, in pieces that threads share.
#include <algorithm>
#include <vector>

#include "dataflow/error.h"
#include "trainer/optimizer.h"

namespace penstock {
namespace {

/// Elements of one piece: 256 KiB of weights, so that weight, gradient and state of a piece lie in
/// a second-level cache between decay, clip and rule.
constexpr std::size_t kPiece = std::size_t{1} << 16;

class HostOptimizer final : public Optimizer {
 public:
  HostOptimizer(const OptimizerChoice& choice, ParallelFor parallel_for)
      : rule_(choice.entry.make(choice.options)),
        slots_(choice.entry.slots),
        parallel_for_(std::move(parallel_for)) {}

  void set(const Hyper& hyper, Stream&) override { hyper_ = hyper; }
  std::size_t slots() const noexcept override { return slots_; }

  void prepare(const ParameterSet& set) override {
    if (!pieces_.empty()) return;
    state_.assign(slots_ * set.weights.count, 0);
    for (std::size_t index = 0; index < set.parameters.size(); ++index) {
      const std::size_t count = set.parameters[index].weight.count;
      for (std::size_t first = 0; first < count; first += kPiece) {
        pieces_.push_back({index, first, std::min(kPiece, count - first), 0});
      }
    }
  }

  void apply(const ParameterSet& set, float gradient_scale, Stream&, StepResult& result) override {
    if (set.parameters.empty()) return;
    prepare(set);
    parallel_for_(pieces_.size(), [&](std::size_t index) {
      Piece& piece = pieces_[index];
      const Parameter& parameter = set.parameters[piece.parameter];
      const std::span<float> weight = part(parameter.weight, piece);
      UpdateRange range{.weight = weight,
                        .gradient = part(parameter.gradient, piece),
                        .gradient_scale = gradient_scale};
      for (std::size_t slot = 0; slot < slots_; ++slot) {
        range.state[slot] = part(state(set, piece.parameter, slot), piece);
      }
      Hyper hyper = hyper_;
      piece.squares = 0;
      if (parameter.spec.decays()) {
        if (hyper.weight_decay != 0) piece.squares = sum_of_squares(weight);
      } else {
        hyper.weight_decay = 0;
      }
      rule_(hyper, range);
    });
    double squares = 0;
    for (const Piece& piece : pieces_) squares += piece.squares;
    result.l2_loss = static_cast<float>(0.5 * hyper_.weight_decay * squares);
  }

  void average(const ParameterSet& set, const Tensor& other, float scale, float share,
               Stream&) override {
    PENSTOCK_ASSERT(other.count == set.weights.count);
    if (set.parameters.empty()) return;
    auto* const weights = static_cast<float*>(set.weights.data);
    const auto* const others = static_cast<const float*>(other.data);
    const std::size_t pieces = (other.count + kPiece - 1) / kPiece;
    parallel_for_(pieces, [&](std::size_t piece) {
      const std::size_t end = std::min((piece + 1) * kPiece, other.count);
      for (std::size_t i = piece * kPiece; i < end; ++i) {
        weights[i] += share * (scale * others[i] - weights[i]);
      }
    });
  }

  Tensor state(const ParameterSet& set, std::size_t parameter, std::size_t slot) override {
    PENSTOCK_ASSERT(slot < slots_);
    prepare(set);
    const Tensor& weight = set.parameters[parameter].weight;
    const std::ptrdiff_t offset =
        static_cast<float*>(weight.data) - static_cast<float*>(set.weights.data);
    return {state_.data() + slot * set.weights.count + static_cast<std::size_t>(offset),
            weight.count, DType::f32};
  }

 private:
  struct Piece {
    std::size_t parameter, first, count;
    double squares;
  };

  static std::span<float> part(const Tensor& tensor, const Piece& piece) {
    return std::span(static_cast<float*>(tensor.data), tensor.count)
        .subspan(piece.first, piece.count);
  }
  /// In eight lanes, so that it vectorises without reordering the sum from run to run.
  static double sum_of_squares(std::span<const float> values) {
    std::array<double, 8> lanes{};
    std::size_t i = 0;
    for (; i + lanes.size() <= values.size(); i += lanes.size()) {
      for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
        const double value = values[i + lane];
        lanes[lane] += value * value;
      }
    }
    double sum = 0;
    for (; i < values.size(); ++i) sum += double{values[i]} * values[i];
    for (const double lane : lanes) sum += lane;
    return sum;
  }

  const OptimizerEntry::Rule rule_;
  const std::size_t slots_;
  const ParallelFor parallel_for_;
  Hyper hyper_{};
  std::vector<Piece> pieces_;
  std::vector<float> state_;  // [slot][element of the arena]
};

}  // namespace

void serial_for(std::size_t count, const std::function<void(std::size_t)>& body) {
  for (std::size_t i = 0; i < count; ++i) body(i);
}

std::unique_ptr<Optimizer> make_host_optimizer(const OptimizerChoice& choice,
                                               ParallelFor parallel_for) {
  return std::make_unique<HostOptimizer>(choice, std::move(parallel_for));
}

}  // namespace penstock
