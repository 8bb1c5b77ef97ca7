// SPDX-License-Identifier: Apache-2.0
// Synchronous model averaging as in KungFu's SynchronousAveragingOptimizer. Each step computes
//   w <- w + alpha (mean over ranks of w - w),
// then applies the rank's own gradient, which was computed with the weights before that. No
// gradient is sent: ranks exchange weights, as many bytes as an all-reduce of gradients. Each rank
// keeps its own running statistics of batch norm. The reduction is always a mean, even if
// --gradient-reduction says otherwise, because the reduced values are not gradients.
#include "dataflow/error.h"
#include "trainer/update_strategy.h"
#include "trainer/updates/arena_copy.h"

namespace penstock::updates {
namespace {

constexpr OptionSpec kOptions[] = {
    {"alpha", "0.1", "weight of the mean of all ranks in each step, above 0 and at most 1"},
};

class ModelAveraging final : public RankUpdate {
 public:
  explicit ModelAveraging(const UpdateContext& context)
      : RankUpdate(context), alpha_(context.options.real("alpha")), sum_(context) {
    if (!(alpha_ > 0 && alpha_ <= 1)) {
      throw ConfigError("sma:alpha is {}; expected a share above 0 and at most 1, such as 0.1",
                        context.options.text("alpha"));
    }
  }

  void start(Executable& executable, Stream& stream) override {
    RankUpdate::start(executable, stream);
    sum_.beside(executable.parameters().weights);
  }
  void finish_step(Executable& executable, Stream& stream, StepResult& result) override {
    const ParameterSet& set = executable.parameters();
    const std::int32_t ranks = collective_.world().size;
    if (ranks > 1) {
      const Tensor sum = sum_.beside(set.weights);
      copy(sum, set.weights, stream);
      collective_.all_reduce_sum(sum, stream);
      optimizer_.average(set, sum, 1 / static_cast<float>(ranks), static_cast<float>(alpha_),
                         stream);
    }
    optimizer_.apply(set, 1, stream, result);
  }

 private:
  const double alpha_;
  ArenaCopy sum_;
};

}  // namespace

extern constinit const UpdateEntry sma_update{
    .name = "sma",
    .summary =
        "KungFu's synchronous model averaging: weights move towards the mean of all ranks; each "
        "rank applies its own gradient",
    .agreement = Agreement::own,
    .options = kOptions,
    .make = [](const UpdateContext& context) -> std::unique_ptr<UpdateStrategy> {
      return std::make_unique<ModelAveraging>(context);
    },
};

}  // namespace penstock::updates
