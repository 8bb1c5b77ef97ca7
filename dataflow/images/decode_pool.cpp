// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/decode_pool.h"

#include <utility>

#include "dataflow/error.h"
#include "dataflow/images/decode_crew.h"
#include "dataflow/machine/workers.h"

namespace penstock {

DecodePool::DecodePool(const DecodePlan& plan, Source& source,
                       const std::function<std::unique_ptr<Decoder>()>& make_decoder, Clock& clock,
                       Probe& probe)
    : plan_(plan),
      source_(source),
      clock_(clock),
      probe_(probe),
      read_stage_(probe.stage({"read", "decode threads", plan.threads})),
      decode_stage_(probe.stage({"decode", "decode threads", plan.threads})) {
  PENSTOCK_ASSERT(plan.threads > 0);
  PENSTOCK_ASSERT(plan.places.empty() ||
                  plan.places.size() == static_cast<std::size_t>(plan.threads));
  for (std::int32_t i = 0; i < plan.threads; ++i) decoders_.push_back(make_decoder());
  if (plan.choose_threads) tuner_.emplace(plan.threads, probe);
}

DecodePool::~DecodePool() = default;

void DecodePool::run(BatchRing& out, std::stop_token stop) {
  if (tuner_) tuner_->begin(out);
  Crew crew(*this, out, std::move(stop));
  run_workers(plan_.threads,
              [&](std::int32_t i) { crew.work(i, *decoders_[static_cast<std::size_t>(i)]); });
  crew.close();
}

void DecodePool::settle() {
  if (!tuner_) return;
  const std::int32_t unused = plan_.threads - tuner_->settle();
  for (StageCounters* stage : {&read_stage_, &decode_stage_}) stage->stage.threads -= unused;
}

}  // namespace penstock
