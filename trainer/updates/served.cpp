// SPDX-License-Identifier: Apache-2.0
#include "trainer/updates/served.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/probe.h"
#include "trainer/cluster/servers/connection.h"
#include "trainer/cluster/servers/message.h"
#include "trainer/placement.h"

namespace penstock::updates {
namespace {

/// The server's factor for gradients that were added over the ranks of a process and, depending on
/// the rule, over processes.
float served_scale(const UpdateContext& context, std::int32_t workers, cluster::ServerRule rule) {
  float scale = 1;
  if (context.reduction != GradientReduction::sum) {
    scale /= static_cast<float>(context.local_ranks);
  }
  if (context.reduction == GradientReduction::mean && rule == cluster::ServerRule::together) {
    scale /= static_cast<float>(workers);
  }
  return scale;
}

class Served final : public ServedUpdate {
  using Answers = cluster::ServerConnection::Answers;

 public:
  Served(const UpdateContext& context, const ServerLink& link, cluster::ServerRule rule,
         Placement placement, bool staged)
      : ServedUpdate(context, link),
        probe_(context.probe),
        hyper_(link.hyper),
        rule_(rule),
        placement_(placement),
        staged_(staged),
        part_bytes_(part_bytes_of(context.options, "part_bytes")),
        scale_(served_scale(context, servers_.cluster().workers(), rule)),
        gradients_(context),
        pulled_(context),
        step_(first_step_) {
    if (leads() && probe_ != nullptr) describe();
  }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;
  /// The executable's arenas are freed next.
  ~Served() override {
    if (leads()) servers_.release();
  }

  void start(Executable& executable, Stream& stream) override {
    const ParameterSet& set = executable.parameters();
    if (leads()) {
      plan_ = cluster::plan_parts(set, placement_, servers_.cluster().servers(), part_bytes_);
      servers_.begin(plan_, rule_, newest(set), set.running,
                     {.state = step_ > 0 ? optimizer_.state() : OptimizerState{}, .step = step_});
    }
    RankUpdate::start(executable, stream);
  }

  KeptArenas kept(const ParameterSet& set) override {
    if (!plan_.parts.empty()) {
      if (unanswered_ && !early_) early_ = servers_.await();
      servers_.pull(plan_, newest(set), optimizer_.state());
    }
    if (!staged_) return {.weights = set.weights};
    return {
        .weights = pulled_.beside(set.weights), .carried = set.weights, .carries = "staged_weight"};
  }
  void resume() override { has_pulled_ = true; }

  void finish_step(Executable& executable, Stream& stream, StepResult& result) override {
    const ParameterSet& set = executable.parameters();
    collective_.reduce_sum(set.gradients, 0, stream);
    if (leads()) {
      settle(stream);
      if (staged_) {
        exchange_staged(set, stream, result);
      } else {
        push(set.gradients, set.weights);
        await(result);
      }
    }
    collective_.broadcast(set.weights, 0, stream);
  }

 private:
  void describe() const {
    probe_->note(fmt::format(
        "parameter_server: {} workers push to {} servers, whose rule is '{}', times {:g}; {}",
        servers_.cluster().workers(), servers_.cluster().servers(), to_string(rule_), scale_,
        staged_ ? "steps read weights one update old" : "steps read the newest weights"));
  }
  void push(const Tensor& gradients, const Tensor& weights) {
    const cluster::ServerConnection::Terms terms{hyper_(step_++), scale_};
    const auto* const from = static_cast<const float*>(gradients.data);
    auto* const into = static_cast<float*>(weights.data);
    for (const cluster::Part& part : plan_.parts) {
      if (part.fixed) continue;
      servers_.push({.part = part.key,
                     .gradients = {from + part.first, part.count},
                     .into = {into + part.first, part.count}},
                    terms);
    }
  }
  /// The weights of the next push's answer: if staged, beside those that the next step reads.
  Tensor newest(const ParameterSet& set) {
    return has_pulled_ ? pulled_.beside(set.weights) : set.weights;
  }
  void await(StepResult& result) {
    unanswered_ = false;
    const Answers answers = early_ ? *std::exchange(early_, std::nullopt) : servers_.await();
    result.l2_loss = static_cast<float>(answers.value);
    if (rule_ != cluster::ServerRule::on_arrival || probe_ == nullptr) return;
    probe_->counter(fmt::format("updates_stale_by_{}", answers.staleness)).add();
  }
  /// Waits for the previous step's answer, then pushes this step's gradients.
  void exchange_staged(const ParameterSet& set, Stream& stream, StepResult& result) {
    const Tensor pulled = pulled_.beside(set.weights);
    if (unanswered_) {
      await(result);
    } else {  // the first step of this run
      optimizer_.report_decay(set, stream, result);
    }
    if (std::exchange(has_pulled_, true)) copy(set.weights, pulled, stream);
    const Tensor gradients = gradients_.beside(set.gradients);
    copy(gradients, set.gradients, stream);
    settle(stream);
    push(gradients, pulled);
    unanswered_ = true;
  }

  Probe* const probe_;
  const std::function<Hyper(std::int64_t)> hyper_;
  const cluster::ServerRule rule_;
  const Placement placement_;
  const bool staged_;
  const std::size_t part_bytes_;
  const float scale_;
  // Used if staged.
  ArenaCopy gradients_, pulled_;
  bool has_pulled_ = false;       // pulled_ has, or will have, the servers' weights
  bool unanswered_ = false;       // a push is not yet awaited by a step
  std::optional<Answers> early_;  // awaited between steps
  cluster::PartPlan plan_;        // empty on ranks that do not lead, and before start()
  std::int64_t step_;
};

}  // namespace

std::unique_ptr<UpdateStrategy> make_served(const UpdateContext& context, const ServerLink& link,
                                            cluster::ServerRule rule, bool staged) {
  // By default the parts use all servers.
  const std::string placement_text =
      context.options.given("placement") ? context.options.text("placement") : "greedy";
  const Placement placement = parse_placement(placement_text, "parameter_server:placement");
  return std::make_unique<Served>(context, link, rule, placement, staged);
}

std::size_t part_bytes_of(const Options& options, std::string_view name) {
  const std::uint64_t bytes = options.bytes(name);
  if (bytes < sizeof(float) || bytes > cluster::kMaxFrame) {
    throw ConfigError("{} is {}; expected 4 bytes to {} MiB", name, options.text(name),
                      cluster::kMaxFrame >> 20);
  }
  return static_cast<std::size_t>(bytes);
}

}  // namespace penstock::updates
