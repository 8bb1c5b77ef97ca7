// SPDX-License-Identifier: Apache-2.0
// No exchange: every replica trains alone. An upper bound for the throughput of all updates.
#include "trainer/update_strategy.h"
#include "trainer/updates/arena_copy.h"

namespace penstock::updates {
namespace {

class Independent final : public RankUpdate {
 public:
  using RankUpdate::RankUpdate;

  void finish_step(Executable& executable, Stream& stream, StepResult& result) override {
    optimizer_.apply(executable.parameters(), 1, stream, result);
  }
};

}  // namespace

extern constinit const UpdateEntry independent_update{
    .name = "independent",
    .summary = "every replica trains alone, without exchange: an upper bound",
    .agreement = Agreement::own,
    .steps_apart = [](const Options&, bool) { return true; },
    .make = [](const UpdateContext& context) -> std::unique_ptr<UpdateStrategy> {
      return std::make_unique<Independent>(context);
    },
};

}  // namespace penstock::updates
