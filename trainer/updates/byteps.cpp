// SPDX-License-Identifier: Apache-2.0
#include "trainer/updates/served.h"

#include <fmt/format.h>

#include <memory>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/probe.h"
#include "trainer/cluster/servers/connection.h"
#include "trainer/updates/arena_copy.h"

namespace penstock::updates {
namespace {

float byteps_scale(const UpdateContext& context, std::int32_t workers) {
  if (context.reduction == GradientReduction::sum) return 1;
  if (context.reduction != GradientReduction::mean) workers = 1;
  return 1 / static_cast<float>(context.local_ranks * workers);
}

class BytePs final : public ServedUpdate {
 public:
  BytePs(const UpdateContext& context, const ServerLink& link)
      : ServedUpdate(context, link),
        scale_(byteps_scale(context, servers_.cluster().workers())),
        partition_bytes_(part_bytes_of(context.options, "partition_bytes")),
        credit_bytes_(static_cast<std::size_t>(context.options.bytes("credit_bytes"))) {
    if (!leads() || context.probe == nullptr) return;
    context.probe->note(
        fmt::format("byteps: {} workers push to {} servers, whose rule is '{}', times {:g}",
                    servers_.cluster().workers(), servers_.cluster().servers(),
                    to_string(cluster::ServerRule::sum), scale_));
  }
  BytePs(const BytePs&) = delete;
  BytePs& operator=(const BytePs&) = delete;
  /// The executable's arenas are freed next.
  ~BytePs() override {
    if (leads()) servers_.release();
  }

  void start(Executable& executable, Stream& stream) override {
    const ParameterSet& set = executable.parameters();
    if (leads()) {
      plan(set);
      servers_.begin(plan_, cluster::ServerRule::sum, set.weights, set.running,
                     {.step = first_step_});
      servers_.set_credit(credit_bytes_);
    }
    RankUpdate::start(executable, stream);
  }

  /// One rank's gradients are pushed during backward. Gradients of several ranks are added first,
  /// after backward.
  GradientReady gradient_ready(Stream& stream) override {
    if (collective_.world().size > 1) return {};
    begin_step();
    return [this, &stream](std::size_t parameter) {
      for (const std::size_t part : parts_of_[parameter]) {
        if (--missing_[part] > 0) continue;
        settle(stream);
        try {
          push(part);
        } catch (const Error&) {
          return;  // finish_step throws the same exception
        }
      }
    };
  }

  void finish_step(Executable& executable, Stream& stream, StepResult& result) override {
    const ParameterSet& set = executable.parameters();
    if (collective_.world().size > 1) {
      collective_.reduce_sum(set.gradients, 0, stream);
      begin_step();
    }
    if (leads()) {
      settle(stream);
      for (std::size_t part = 0; part < pushed_.size(); ++part) push(part);
      static_cast<void>(servers_.await());
    }
    collective_.broadcast(set.gradients, 0, stream);
    optimizer_.apply(set, scale_, stream, result);
  }

 private:
  void plan(const ParameterSet& set) {
    plan_ = cluster::plan_partitions(set, servers_.cluster().servers(), partition_bytes_);
    gradients_ = {static_cast<float*>(set.gradients.data), set.gradients.count};
    parameters_in_.assign(plan_.parts.size(), 0);
    parts_of_.assign(set.parameters.size(), {});
    for (std::size_t index = 0; index < set.parameters.size(); ++index) {
      const Tensor& tensor = set.parameters[index].gradient;
      const std::size_t begin = offset_in(set.gradients, tensor);
      for (std::size_t part = 0; part < plan_.parts.size(); ++part) {
        const cluster::Part& range = plan_.parts[part];
        if (range.fixed || range.first >= begin + tensor.count ||
            range.first + range.count <= begin) {
          continue;
        }
        parts_of_[index].push_back(part);
        ++parameters_in_[part];
      }
    }
  }
  void begin_step() {
    missing_ = parameters_in_;
    pushed_.assign(plan_.parts.size(), false);
  }
  /// The sum overwrites the gradients: it arrives after the server has them.
  void push(std::size_t index) {
    const cluster::Part& part = plan_.parts[index];
    if (part.fixed || pushed_[index]) return;
    pushed_[index] = true;
    const std::span<float> range = gradients_.subspan(part.first, part.count);
    servers_.push({.part = part.key,
                   .gradients = range,
                   .into = range,
                   .priority = static_cast<std::int32_t>(index)},
                  {});
  }

  const float scale_;
  const std::size_t partition_bytes_, credit_bytes_;
  cluster::PartPlan plan_;
  std::span<float> gradients_;
  std::vector<std::vector<std::size_t>> parts_of_;  // by parameter
  std::vector<std::size_t> parameters_in_;          // by part
  std::vector<std::size_t> missing_;                // by part: gradients not yet complete
  std::vector<bool> pushed_;
};

}  // namespace

std::unique_ptr<UpdateStrategy> make_byteps(const UpdateContext& context, const ServerLink& link) {
  return std::make_unique<BytePs>(context, link);
}

}  // namespace penstock::updates
