// SPDX-License-Identifier: Apache-2.0
// Real images: a Source's files, read, decoded and augmented by the workers of a DecodePool into
// the slots of a bounded ring.
#include <string>
#include <utility>

#include "dataflow/decode_pool.h"
#include "dataflow/decoder.h"
#include "dataflow/error.h"
#include "dataflow/source.h"
#include "feeders/feeder.h"

namespace penstock {
namespace {

// `source` apart, these are the options of the jpeg decoder, which explains them; empty: its
// default.
constexpr OptionSpec kOptions[] = {
    {"crop", "", "random (default), center or full"},
    {"flip", "", "mirror every other image, by chance (default true)"},
    {"upsampling", "", "fancy (default) or plain"},
    {"max_pixels", "", "refuse larger images (default 178956970)"},
    {"source", "image-folder", "where encoded images come from"},
};

/// The options among ours that were typed and that `specs` knows. Evaluation takes the centre, or
/// the whole image where that was asked for, and flips nothing.
Options forward(const Options& options, std::string_view component,
                std::span<const OptionSpec> specs, bool augment) {
  ComponentText typed;
  typed.name = component;
  for (const OptionSpec& spec : specs) {
    std::string value = options.given(spec.name) ? options.text(spec.name) : std::string();
    if (!augment && spec.name == "crop" && value != "full") value = "center";
    if (!augment && spec.name == "flip") value = "false";
    if (!value.empty()) typed.values.emplace_back(std::string(spec.name), std::move(value));
  }
  return Options(component, specs, typed);
}

std::int64_t bad_samples_allowed(const BadSamplePolicy& policy) {
  return policy.action == BadSamplePolicy::Action::skip ? policy.limit : 0;
}

class DecodeQueue final : public Feeder {
 public:
  explicit DecodeQueue(const FeederContext& context)
      : source_(make_source(context)), pool_(make_pool(context)) {}

  DataExtent extent() const noexcept override { return {source_->size(), source_->classes()}; }
  void run(BatchRing& out, std::stop_token stop) override { pool_.run(out, std::move(stop)); }

 private:
  static std::unique_ptr<Source> make_source(const FeederContext& context) {
    const ComponentText text = parse_component(context.options.text("source"));
    const SourceEntry& entry = find_entry(source_table(), text.name);
    return entry.make(context.data, Options(entry.name, entry.options, text));
  }

  DecodePool make_pool(const FeederContext& context) {
    const BatchSpec& spec = context.spec;
    if (spec.pixel != DType::u8 || spec.image.channels != 3) {
      throw ConfigError("the feeder queue writes 8-bit RGB pixels; the model asks for " +
                        std::to_string(8 * size_of(spec.pixel)) + "-bit pixels of " +
                        std::to_string(spec.image.channels) + " channels; choose another model");
    }
    const DecoderEntry& entry = find_entry(decoder_table(), "jpeg");
    const Options options =
        forward(context.options, entry.name, entry.options, context.data.augment);
    const DecodePlan plan{.threads = context.threads,
                          .order = context.data.order,
                          .seed = context.seed,
                          .marks = context.marks,
                          .bad_samples_allowed = bad_samples_allowed(context.on_bad_sample)};
    return DecodePool(
        plan, *source_, [&] { return entry.make(options); }, context.clock, context.probe);
  }

  const std::unique_ptr<Source> source_;
  DecodePool pool_;
};

std::unique_ptr<Feeder> make(const FeederContext& context) {
  return std::make_unique<DecodeQueue>(context);
}

}  // namespace

extern constinit const FeederEntry decode_queue_feeder{
    .name = "queue",
    .summary = "images read, decoded and augmented on the CPU, a bounded queue, and the copy",
    .reads_files = true,
    .options = kOptions,
    .make = make,
};

}  // namespace penstock
