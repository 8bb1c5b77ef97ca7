// SPDX-License-Identifier: Apache-2.0
// A graph compiled for a GPU: one schedule per phase, arenas of weights and gradients, and one
// block for activations and workspaces that the phases share. The constructor allocates everything
// and runs every kernel once, so that steps can be recorded.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/backend.h"
#include "trainer/backends/gpu/device.h"
#include "trainer/backends/gpu/fusion.h"
#include "trainer/backends/gpu/layouts.h"
#include "trainer/backends/gpu/plan_book.h"
#include "trainer/backends/gpu/schedule.h"

namespace penstock::gpu {

/// Where a step uses a form of its operators. automatic: where it is faster (without timings: where
/// engines exist). on: where engines exist. off: nowhere.
enum class FormMode : std::uint8_t { automatic, on, off };
struct FormModes {
  FormMode fused = FormMode::automatic;  ///< f16 convolutions take over the batch norms around them
  FormMode stem_blocks = FormMode::automatic;  ///< the stem reads blocks of 2x2 pixels
};

/// The limit of gpu:workspace_mib=auto. Engines copy the operands of a convolution to another
/// layout, so it is the size of the largest convolution and a little more, but at most a sixteenth
/// of the memory.
std::size_t automatic_workspace(const Graph& graph, std::int32_t images, DType type,
                                std::size_t memory_bytes);

class GpuExecutable final : public Executable {
 public:
  /// Borrows `device` and `book`. `memory_budget`: bytes that this executable and its optimiser may
  /// take. `rules` with a workspace limit of 0 get the automatic one. Throws ConfigError with a
  /// batch that fits if they need more, and Unavailable if an operator has no engine.
  GpuExecutable(Graph graph, const ExecutableSpec& spec, GpuDevice& device, const PlanRules& rules,
                const FormModes& forms, PlanBook& book, std::size_t memory_budget);

  const ParameterSet& parameters() const noexcept override { return set_; }
  void run(Phase phase, const Batch& batch, Stream& stream, const GradientReady& ready,
           StepResult& result) override;
  void read(const ParameterSpec& spec, const Tensor& from, std::span<float> plain) override;
  void write(const ParameterSpec& spec, const Tensor& to, std::span<const float> plain) override;
  void set_step(std::int64_t step) override { step_ = step; }
  /// Gradients of 16 bits are widened group by group.
  void group_gradients(std::span<const std::size_t> parameters) override;

  std::size_t activation_bytes() const noexcept { return block_.bytes().size(); }
  std::size_t parameter_bytes() const noexcept { return set_.weights.count * sizeof(float); }
  std::size_t fused_count() const noexcept { return fused_; }
  /// Says how many graphs do without the library's first engine because of the workspace limit.
  /// Empty: none.
  std::string workspace_note() const;
  std::size_t operation_count() const noexcept {
    const std::size_t widening = short_gradients_.bytes().empty() ? 0 : group_ends_.size();
    return schedule(Phase::train).operation_count() + widening;
  }

 private:
  static constexpr std::size_t kPhases = 3;
  using Plans = std::map<std::string, std::shared_ptr<const DnnPlan>>;

  const Schedule& schedule(Phase phase) const noexcept {
    return *schedules_[static_cast<std::size_t>(phase)];
  }
  std::unique_ptr<Schedule> build(Phase phase, const ExecutableSpec& spec, const FusionPlan& fusion,
                                  Plans& plans, std::size_t& done);
  FusionPlan plan_fusion_of(Phase phase, const ExecutableSpec& spec, bool has_all) const;
  FusionCosts costs_for(FormMode mode) const;
  std::size_t fixed_bytes() const;
  std::size_t least_planned_bytes() const;
  [[noreturn]] void refuse(std::size_t planned_bytes);
  Buffer zeroed(std::size_t bytes);
  void make_arenas();
  void warm_up();
  Homes homes_for(const Batch& batch, StepResult& result);
  void train_short(StreamHandle stream, const Homes& homes, const GradientReady& ready) const;

  const Graph graph_;
  const ExecutableSpec spec_;
  GpuDevice& device_;
  PlanRules rules_;
  const FormModes forms_;
  PlanBook& book_;
  const std::size_t memory_budget_;
  const Layouts layouts_;
  std::size_t fused_ = 0;  // operators that take over batch norms
  std::size_t graphs_without_first_engine_ = 0, excluded_bytes_ = 0;
  std::array<std::unique_ptr<Schedule>, kPhases> schedules_;
  Buffer weights_, gradients_, running_, short_weights_, short_gradients_, tables_, block_;
  ParameterSet set_;
  std::vector<std::size_t> first_chunks_;  // index into the tables, by parameter; then the end
  std::vector<std::size_t> group_ends_;    // the end of each group's parameters
  std::int64_t step_ = 0;
};

}  // namespace penstock::gpu
