// SPDX-License-Identifier: Apache-2.0
#include "feeders/image_decoding.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/images/planes.h"
#include "dataflow/machine/memory_pages.h"
#include "dataflow/stage_timer.h"

namespace penstock {
namespace {

/// The decoder's options for a source that gives pixels. In evaluation, images that already have
/// the batch's size stay unchanged, unless training also crops the centre.
ComponentText raw_decoder_text(const DecodingFeeder& feeder, const DecoderEntry& decoder,
                               bool augment) {
  const Options& options = feeder.context.options;
  const std::string name(feeder.name);
  ComponentText typed = decoder_text(feeder, decoder, true);
  for (const char* word :
       {"upsampling", "max_pixels", "decode", "shrink", "engine", "chain", "resize", "color"}) {
    if (!options.given(word)) continue;
    throw ConfigError(
        "{}: option '{}' applies to encoded images only, but the source '{}' gives pixels; leave "
        "the option out, or choose another source",
        name, word, parse_component(options.text("source")).name);
  }
  if (augment) return typed;
  std::string crop = options.text("crop");
  if (crop.empty() || crop.starts_with("auto") || crop.starts_with("pad")) {
    crop = "auto-center";
  } else {
    crop = name_of(evaluation_crop(parse_crop(name, crop)));
  }
  typed.values = {{"crop", crop}, {"flip", "false"}};
  return typed;
}

/// Returns the options of the pool's decoders.
ComponentText pool_decoder_text(const DecodingFeeder& feeder, const DecoderEntry& decoder,
                                bool pixels) {
  const Options& options = feeder.context.options;
  const bool augment = feeder.context.data.augment;
  if (!pixels) return decoder_text(feeder, decoder, augment);
  if (!holds_pixels(feeder)) return raw_decoder_text(feeder, decoder, augment);
  // The source took the crop before the run.
  ComponentText text{std::string(decoder.name), {{"crop", "full"}}};
  const bool flip = augment && options.given("flip") && options.flag("flip");
  text.values.emplace_back("flip", flip ? "true" : "false");
  return text;
}

/// Evaluation uses all threads: it ends before a search for the number could finish.
bool chooses_threads(const DecodingFeeder& feeder) {
  const std::string& text = feeder.context.options.text("threads");
  if (text != "all" && text != "auto") {
    throw ConfigError(
        "{}: option 'threads' is '{}'; expected all or auto; --feeder-threads says how many",
        feeder.name, text);
  }
  return text == "auto" && feeder.context.data.augment;
}

/// A decoder that calls `then` after each sample.
class ExtendedDecoder final : public DecoderOver {
 public:
  ExtendedDecoder(std::unique_ptr<Decoder> decoder, std::function<void(const Sample&)> then)
      : DecoderOver(std::move(decoder)), then_(std::move(then)) {}

  void decode(const Sample& sample, const ImageView& row, Random& random) override {
    decoder_->decode(sample, row, random);
    then_(sample);
  }

 private:
  const std::function<void(const Sample&)> then_;
};

Nanoseconds parse_extra(const DecodingFeeder& feeder) {
  const Options& options = feeder.context.options;
  const double us = options.real("extra_us");
  if (us < 0 || us > 1e7) {
    throw ConfigError("{}: option 'extra_us' is '{}'; expected 0 to 10000000 microseconds",
                      feeder.name, options.text("extra_us"));
  }
  return Nanoseconds(std::llround(us * 1000));
}

std::optional<std::int32_t> choose_slot_node(const DecodingFeeder& feeder) {
  const std::string& nodes = feeder.context.options.text("numa");
  if (nodes.empty()) return std::nullopt;
  const std::vector<std::int32_t> list =
      parse_cpu_list(nodes, std::string(feeder.name) + ": option 'numa'");
  return list.size() == 1 ? std::optional(list.front()) : std::nullopt;
}

}  // namespace

ComponentText decoder_text(const DecodingFeeder& feeder, const DecoderEntry& decoder,
                           bool augment) {
  const Options& options = feeder.context.options;
  ComponentText typed;
  typed.name = decoder.name;
  for (const OptionSpec& spec : decoder.options) {
    std::string value = options.given(spec.name) ? options.text(spec.name) : std::string();
    if (!augment && spec.name == "crop") {
      value = name_of(evaluation_of(read_augmentation(feeder.name, options)).crop);
    }
    if (!augment && spec.name == "color") value = "none";
    if (!augment && spec.name == "flip") value = "false";
    if (!value.empty()) typed.values.emplace_back(std::string(spec.name), std::move(value));
  }
  return typed;
}

bool holds_pixels(const DecodingFeeder& feeder) {
  const std::string& text = feeder.context.options.text("decode");
  if (text != "region" && text != "full" && text != "raw") {
    throw ConfigError("{}: option 'decode' is '{}'; expected region, full or raw", feeder.name,
                      text);
  }
  return text == "raw";
}

ImageDecoding::ImageDecoding(const DecodingFeeder& feeder)
    : probe_(feeder.context.probe),
      places_(choose_places(feeder.context.threads, read_cpu_topology(allowed_cpus()),
                            {.cores = feeder.context.options.text("cores"),
                             .nodes = feeder.context.options.text("numa")})),
      slot_node_(choose_slot_node(feeder)) {}

void ImageDecoding::open(const DecodingFeeder& feeder, Source& source, SampleCoverage* coverage) {
  const FeederContext& context = feeder.context;
  const BatchSpec& spec = context.spec;
  check_normalised(context.options, spec);
  if (spec.image.channels != 3) {
    throw ConfigError(
        "the feeder {} writes RGB pixels; the model asks for {} channels; choose another model",
        feeder.name, spec.image.channels);
  }
  const bool pixels = source.facts().kind == SampleKind::pixels;
  const DecoderEntry& entry = find_entry(decoder_table(), pixels ? "raw" : "jpeg");
  const Options options(entry.name, entry.options, pool_decoder_text(feeder, entry, pixels));
  const BadSamplePolicy& policy = context.on_bad_sample;
  const DecodePlan plan{
      .threads = places_.empty() ? context.threads : static_cast<std::int32_t>(places_.size()),
      .choose_threads = chooses_threads(feeder),
      .places = places_,
      .order = context.data.order,
      .seed = context.seed,
      .marks = context.marks,
      .bad_samples_allowed = policy.action == BadSamplePolicy::Action::skip ? policy.limit : 0};
  const Nanoseconds extra = parse_extra(feeder);
  const bool is_extended = extra != Nanoseconds::zero() || coverage != nullptr;
  const auto then = [extra, coverage](const Sample& sample) {
    if (extra != Nanoseconds::zero()) {
      const Nanoseconds end = thread_cpu_time() + extra;
      while (thread_cpu_time() < end) continue;
    }
    if (coverage != nullptr) coverage->saw(sample.epoch, sample.index);
  };
  const auto make_decoder = [&]() -> std::unique_ptr<Decoder> {
    std::unique_ptr<Decoder> decoder = entry.make(options);
    if (spec.normalised) decoder = make_normalising_decoder(std::move(decoder));
    if (spec.planar) decoder = make_planar_decoder(std::move(decoder));
    if (!is_extended) return decoder;
    return std::make_unique<ExtendedDecoder>(std::move(decoder), then);
  };
  pool_.emplace(plan, source, make_decoder, context.clock, context.probe);
  note_places(context);
}

void ImageDecoding::run(BatchRing& out, std::stop_token stop) {
  if (slot_node_) move_slots(out);
  pool_->run(out, std::move(stop));
}

void ImageDecoding::note_places(const FeederContext& context) const {
  if (places_.empty() || !context.data.augment) return;
  std::string note = "decode threads: " + describe_places(places_);
  if (places_.size() < static_cast<std::size_t>(context.threads)) {
    note += fmt::format("; that is all, of {}", context.threads);
  }
  probe_.note(std::move(note));
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const std::string thread = fmt::format("decode_thread_{}", i);
    probe_.fact(thread + "_core", places_[i].id);
    probe_.fact(thread + "_node", places_[i].node);
  }
}

void ImageDecoding::move_slots(const BatchRing& ring) const {
  for (std::size_t slot = 0; slot < ring.slots(); ++slot) {
    if (move_to_node(ring.memory(slot), *slot_node_)) continue;
    probe_.note(fmt::format(
        "the slots were not moved, because the system refused to move them to NUMA node {}: {}",
        *slot_node_, std::strerror(errno)));
    return;
  }
}

}  // namespace penstock
