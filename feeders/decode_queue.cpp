// SPDX-License-Identifier: Apache-2.0
// The feeder `queue`: the workers of a DecodePool read, decode and augment the images of a Source
// and write them into the slots of a bounded ring. If the source holds pixels, workers only crop
// and resize. With decode=raw the source decodes its images before the run.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "dataflow/images/normalisation.h"
#include "dataflow/source.h"
#include "feeders/feeder.h"
#include "feeders/image_decoding.h"
#include "feeders/image_source.h"

namespace penstock {
namespace {

constexpr auto kOptions = joined_options(kJpegOptions, kSourceOptions, kDecodePoolOptions);

class DecodeQueue final : public Feeder {
 public:
  explicit DecodeQueue(const FeederContext& context)
      : decoding_({"queue", context}), source_(make_image_source(context)) {
    facts_ = source_->facts();
    const std::string& coverage = context.options.text("coverage");
    // Evaluations read other samples.
    if (!coverage.empty() && context.data.augment)
      coverage_.emplace(coverage, context.data, facts_);
    decoding_.open({"queue", context}, *source_, coverage_ ? &*coverage_ : nullptr);
    if (!facts_.note.empty()) context.probe.note(facts_.note);
  }

  DataExtent extent() const noexcept override {
    return {facts_.size_over_ranks, facts_.size, facts_.classes};
  }
  const FileList* files() const noexcept override { return facts_.files; }
  bool is_settled() const override { return decoding_.is_settled(); }
  void settle() override { decoding_.settle(); }
  void run(BatchRing& out, std::stop_token stop) override {
    decoding_.run(out, std::move(stop));
    if (coverage_) coverage_->write();
  }

 private:
  std::optional<SampleCoverage> coverage_;
  ImageDecoding decoding_;
  const std::unique_ptr<Source> source_;
  SourceFacts facts_;
};

}  // namespace

extern constinit const FeederEntry decode_queue_feeder{
    .name = "queue",
    .summary = "images read, decoded and augmented on the CPU, through a bounded queue",
    .reads_files = true,
    .decodes_samples = true,
    .takes_layout = true,
    .options = kOptions,
    .shape_batches = normalise_batches,
    .make = make_feeder<DecodeQueue>,
};

}  // namespace penstock
