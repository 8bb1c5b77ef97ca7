// SPDX-License-Identifier: Apache-2.0
// Applies an optimiser's rule to the arenas of a host device, in pieces that threads share.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/machine/workers.h"
#include "trainer/effective_gradient.h"
#include "trainer/loss_scale.h"
#include "trainer/optimizer.h"
#include "trainer/wire_format.h"

namespace penstock {
namespace {

/// Elements per piece: 256 KiB of weights, so that weight, gradient and state of a piece stay in a
/// second-level cache between decay, clipping and rule.
constexpr std::size_t kPiece = std::size_t{1} << 16;

class HostOptimizer final : public Optimizer {
 public:
  HostOptimizer(const OptimizerChoice& choice, ParallelFor parallel_for, const FiniteRules& finite)
      : Optimizer(tensor_rules(choice)),
        rule_(choice.entry.make(choice.options)),
        slots_(choice.entry.slots),
        stored_(stored_as(choice.weights)),
        parallel_for_(std::move(parallel_for)),
        finite_(finite),
        loss_scale_{.scale = finite.loss_scale} {}

  void set(const Hyper& hyper, Stream&) override { hyper_ = hyper; }

  void prepare(const ParameterSet& set) override {
    if (!pieces_.empty()) return;
    state_.assign(slots_ * set.weights.count, 0);
    for (std::size_t index = 0; index < set.parameters.size(); ++index) {
      const std::size_t count = set.parameters[index].weight.count;
      for (std::size_t first = 0; first < count; first += kPiece) {
        pieces_.push_back({index, first, std::min(kPiece, count - first)});
      }
    }
    round_all(set);
  }

  void apply(const ParameterSet& set, float gradient_scale, Stream& stream,
             StepResult& result) override {
    if (set.parameters.empty()) return;
    prepare(set);
    if (finite_.checks && !check_gradients(set)) {
      result.finite = false;
      return report_decay(set, stream, result);
    }
    if (tensors_.layer_wise) find_norms(set, gradient_scale);
    parallel_for_(pieces_.size(), [&](std::size_t index) {
      Piece& piece = pieces_[index];
      const Parameter& parameter = set.parameters[piece.parameter];
      UpdateRange range = range_of(parameter, piece, gradient_scale);
      for (std::size_t slot = 0; slot < slots_; ++slot) {
        range.state[slot] = part(state_of(set, parameter, slot), piece);
      }
      if (tensors_.layer_wise) {
        range.weight_norm = norms_[piece.parameter].weight;
        range.gradient_norm = norms_[piece.parameter].gradient;
      }
      Hyper hyper = hyper_;
      piece.squares = 0;
      if (tensors_.decays(parameter.spec)) {
        if (hyper.weight_decay != 0) piece.squares = sum_of_squares(range.weight);
      } else {
        hyper.weight_decay = 0;
      }
      rule_(hyper, range);
      round(parameter.spec, range.weight);
    });
    double squares = 0;
    for (const Piece& piece : pieces_) squares += piece.squares;
    result.l2_loss = static_cast<float>(0.5 * hyper_.weight_decay * squares);
  }

  void report_decay(const ParameterSet& set, Stream&, StepResult& result) override {
    prepare(set);
    double squares = 0;
    for (const Piece& piece : pieces_) {
      const Parameter& parameter = set.parameters[piece.parameter];
      if (tensors_.decays(parameter.spec)) squares += sum_of_squares(part(parameter.weight, piece));
    }
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
    prepare(set);
    round_all(set);
  }

  OptimizerState state() override {
    OptimizerState state{.slots = slots_};
    if (finite_.count_to > 0) state.loss_scale = {&loss_scale_, 2};
    for (std::size_t slot = 0; slot < slots_; ++slot) {
      const std::size_t count = state_.size() / slots_;
      state.arenas[slot] = {state_.data() + slot * count, count, DType::f32};
    }
    return state;
  }

 private:
  struct Piece {
    std::size_t parameter, first, count;
    double squares = 0, gradient_squares = 0;
  };
  struct Norms {
    double weight = 0, gradient = 0;
  };

  Tensor state_of(const ParameterSet& set, const Parameter& parameter, std::size_t slot) {
    const Tensor& weight = parameter.weight;
    return {state_.data() + slot * set.weights.count + offset_in(set.weights, weight), weight.count,
            DType::f32};
  }

  static WireFormat stored_as(DType type) {
    PENSTOCK_ASSERT(type == DType::f32 || type == DType::f16 || type == DType::bf16);
    if (type == DType::f32) return WireFormat::f32;
    return type == DType::f16 ? WireFormat::f16 : WireFormat::bf16;
  }
  void round(const ParameterSpec& spec, std::span<float> weights) const {
    if (stored_ != WireFormat::f32 && may_be_short(spec)) round_to(stored_, weights);
  }

  void round_all(const ParameterSet& set) const {
    if (stored_ == WireFormat::f32) return;
    parallel_for_(pieces_.size(), [&](std::size_t index) {
      const Piece& piece = pieces_[index];
      const Parameter& parameter = set.parameters[piece.parameter];
      round(parameter.spec, part(parameter.weight, piece));
    });
  }

  /// Whether the gradients are finite. Adapts the loss scale.
  bool check_gradients(const ParameterSet& set) {
    std::atomic<bool> finite = true;
    parallel_for_(pieces_.size(), [&](std::size_t index) {
      const Piece& piece = pieces_[index];
      for (const float value : part(set.parameters[piece.parameter].gradient, piece)) {
        if (!std::isfinite(value)) finite = false;
      }
    });
    loss_scale_ = next_loss_scale(loss_scale_, finite, static_cast<float>(finite_.count_to));
    return finite;
  }

  static UpdateRange range_of(const Parameter& parameter, const Piece& piece,
                              float gradient_scale) {
    return {.weight = part(parameter.weight, piece),
            .gradient = part(parameter.gradient, piece),
            .gradient_scale = gradient_scale};
  }

  void find_norms(const ParameterSet& set, float gradient_scale) {
    Hyper undecayed = hyper_;
    undecayed.weight_decay = 0;
    parallel_for_(pieces_.size(), [&](std::size_t index) {
      Piece& piece = pieces_[index];
      const Parameter& parameter = set.parameters[piece.parameter];
      if (!tensors_.scales(parameter.spec)) return;
      const UpdateRange range = range_of(parameter, piece, gradient_scale);
      piece.squares = sum_of_squares(range.weight);
      piece.gradient_squares = sum_of_squares(
          piece.count, [&](std::size_t i) { return effective_gradient(undecayed, range, i); });
    });
    norms_.assign(set.parameters.size(), {});
    for (const Piece& piece : pieces_) {
      if (!tensors_.scales(set.parameters[piece.parameter].spec)) continue;
      norms_[piece.parameter].weight += piece.squares;
      norms_[piece.parameter].gradient += piece.gradient_squares;
    }
    for (Norms& norm : norms_) norm = {std::sqrt(norm.weight), std::sqrt(norm.gradient)};
  }

  static std::span<float> part(const Tensor& tensor, const Piece& piece) {
    return std::span(static_cast<float*>(tensor.data), tensor.count)
        .subspan(piece.first, piece.count);
  }
  static double sum_of_squares(std::span<const float> values) {
    return sum_of_squares(values.size(), [&](std::size_t i) { return values[i]; });
  }
  /// Sums in eight lanes, so that the loop vectorises and the order of additions is the same in
  /// every run.
  template <typename ValueAt>
  static double sum_of_squares(std::size_t count, const ValueAt& value_at) {
    std::array<double, 8> lanes{};
    std::size_t i = 0;
    for (; i + lanes.size() <= count; i += lanes.size()) {
      for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
        const double value = value_at(i + lane);
        lanes[lane] += value * value;
      }
    }
    double sum = 0;
    for (; i < count; ++i) sum += double{value_at(i)} * value_at(i);
    for (const double lane : lanes) sum += lane;
    return sum;
  }

  const OptimizerEntry::Rule rule_;
  const std::size_t slots_;
  const WireFormat stored_;
  const ParallelFor parallel_for_;
  const FiniteRules finite_;
  LossScale loss_scale_;
  Hyper hyper_{};
  std::vector<Piece> pieces_;
  std::vector<Norms> norms_;  // of layer-wise rules: by parameter; 0 if the rule does not scale it
  std::vector<float> state_;  // [slot][element of the arena]
};

}  // namespace

void serial_for(std::size_t count, const std::function<void(std::size_t)>& body) {
  for (std::size_t i = 0; i < count; ++i) body(i);
}

ParallelFor parallel_for_on(std::int32_t threads) {
  return [threads](std::size_t count, const std::function<void(std::size_t)>& body) {
    std::atomic<std::size_t> next = 0;
    run_workers(threads, [&](std::int32_t) {
      for (std::size_t i = next++; i < count; i = next++) body(i);
    });
  };
}

FiniteRules finite_rules(const ExecutableSpec& spec) {
  const bool is_short = spec.precision == Precision::f16 || spec.precision == Precision::bf16;
  return {is_short, spec.loss_scale, spec.loss_scale_count_to};
}

std::unique_ptr<Optimizer> make_host_optimizer(const OptimizerChoice& choice,
                                               ParallelFor parallel_for,
                                               const FiniteRules& finite) {
  return std::make_unique<HostOptimizer>(choice, std::move(parallel_for), finite);
}

}  // namespace penstock
