// SPDX-License-Identifier: Apache-2.0
// No exchange: every replica trains alone. The upper bound of all updates.
#include "trainer/update_strategy.h"

namespace penstock {
namespace {

class Independent final : public UpdateStrategy {
 public:
  void finish_step(Executable&, Stream&) override {}
};

}  // namespace

extern constinit const UpdateEntry independent_update{
    .name = "independent",
    .summary = "every replica trains alone, without exchange: the upper bound",
    .agreement = Agreement::own,
    .make = [](const UpdateContext&) -> std::unique_ptr<UpdateStrategy> {
      return std::make_unique<Independent>();
    },
};

}  // namespace penstock
