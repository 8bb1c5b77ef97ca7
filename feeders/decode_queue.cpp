// SPDX-License-Identifier: Apache-2.0
// Real images: a Source's files, read, decoded and augmented by the workers of a DecodePool into
// the slots of a bounded ring. With decode=raw the source decodes before the run, and holds pixels.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "dataflow/decode_pool.h"
#include "dataflow/decoder.h"
#include "dataflow/error.h"
#include "dataflow/source.h"
#include "feeders/feeder.h"

namespace penstock {
namespace {

// The first five are options of the decoders, which explain them; empty: the decoder's default.
constexpr OptionSpec kOptions[] = {
    {"crop", "", "random (default), center or full"},
    {"flip", "", "mirror every other image, by chance (default true; with decode=raw false)"},
    {"upsampling", "", "fancy (default) or plain"},
    {"max_pixels", "", "refuse larger images (default 178956970)"},
    {"decode", "",
     "region (default): what the crop takes; full: whole images, then the crop; raw: pixels that "
     "lie in memory, decoded and cropped before the run (center, or full)"},
    {"source", "image-folder",
     "where images come from, such as memory:limit=512MiB; with decode=raw [memory]"},
    {"extra_us", "0",
     "burn so many microseconds of CPU time for each image in the thread that decodes it: a known "
     "answer for what measures stages"},
};

/// The options among ours that were typed and that the decoder knows. Evaluation takes the centre,
/// or the whole image where that was asked for, and flips nothing.
ComponentText forward(const Options& options, const DecoderEntry& decoder, bool augment) {
  ComponentText typed;
  typed.name = decoder.name;
  for (const OptionSpec& spec : decoder.options) {
    std::string value = options.given(spec.name) ? options.text(spec.name) : std::string();
    if (!augment && spec.name == "crop" && value != "full") value = "center";
    if (!augment && spec.name == "flip") value = "false";
    if (!value.empty()) typed.values.emplace_back(std::string(spec.name), std::move(value));
  }
  return typed;
}

std::string text_of(const ComponentText& component) {
  std::string text = component.name;
  for (const auto& [key, value] : component.values) {
    text += (text.size() == component.name.size() ? ':' : ',') + key + '=' + value;
  }
  return text;
}

bool holds_pixels(const FeederContext& context) {
  const std::string& text = context.options.text("decode");
  if (text != "" && text != "region" && text != "full" && text != "raw") {
    throw ConfigError("queue: option 'decode' is '" + text + "'; expected region, full or raw");
  }
  return text == "raw";
}

/// The text of a source that makes of each image what the jpeg decoder would in evaluation.
ComponentText source_of_pixels(const Options& options) {
  if (options.text("crop") == "random") {
    throw ConfigError(
        "queue: decode=raw holds one crop of each image, and crop is random; expected center or "
        "full; leave crop out, or take decode=full,source=memory");
  }
  ComponentText text = parse_component(options.given("source") ? options.text("source") : "memory");
  ComponentText decoder = forward(options, find_entry(decoder_table(), "jpeg"), false);
  std::erase_if(decoder.values, [](const auto& value) { return value.first == "decode"; });
  text.values.emplace_back("pixels", text_of(decoder));
  return text;
}

std::int64_t bad_samples_allowed(const BadSamplePolicy& policy) {
  return policy.action == BadSamplePolicy::Action::skip ? policy.limit : 0;
}

/// CPU time of this thread.
Nanoseconds thread_cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + Nanoseconds(time.tv_nsec);
}

/// A decoder that takes longer than it has to, by a stated CPU time for each image.
class SlowedDecoder final : public Decoder {
 public:
  SlowedDecoder(std::unique_ptr<Decoder> decoder, Nanoseconds extra)
      : decoder_(std::move(decoder)), extra_(extra) {}

  void decode(const Sample& sample, const ImageView& row, Random& random) override {
    decoder_->decode(sample, row, random);
    const Nanoseconds end = thread_cpu_time() + extra_;
    while (thread_cpu_time() < end) continue;
  }

 private:
  const std::unique_ptr<Decoder> decoder_;
  const Nanoseconds extra_;
};

Nanoseconds parse_extra(const Options& options) {
  const double us = options.real("extra_us");
  if (us < 0 || us > 1e7) {
    throw ConfigError("queue: option 'extra_us' is '" + options.text("extra_us") +
                      "'; expected 0 to 10000000 microseconds");
  }
  return Nanoseconds(std::llround(us * 1000));
}

class DecodeQueue final : public Feeder {
 public:
  explicit DecodeQueue(const FeederContext& context)
      : source_(make_source(context)), pool_(make_pool(context)) {
    if (std::string note = source_->note(); !note.empty()) context.probe.note(std::move(note));
  }

  DataExtent extent() const noexcept override { return {source_->size(), source_->classes()}; }
  const FileList* files() const noexcept override { return source_->files(); }
  void run(BatchRing& out, std::stop_token stop) override { pool_.run(out, std::move(stop)); }

 private:
  static std::unique_ptr<Source> make_source(const FeederContext& context) {
    const bool pixels = holds_pixels(context);
    const ComponentText text = pixels ? source_of_pixels(context.options)
                                      : parse_component(context.options.text("source"));
    const SourceEntry& entry = find_entry(source_table(), text.name);
    const bool can_hold_pixels = std::ranges::any_of(
        entry.options, [](const OptionSpec& option) { return option.name == "pixels"; });
    if (pixels && !can_hold_pixels) {
      throw ConfigError("queue: decode=raw takes pixels from memory, and source is '" + text.name +
                        "'; expected one that holds them; leave source out, or take memory");
    }
    DataPlan plan = context.data;
    plan.image = context.spec.image;
    plan.threads = context.threads;
    const Options options(entry.name, entry.options, text);
    if (!pixels && can_hold_pixels && options.given("pixels")) {
      throw ConfigError("queue: the source holds pixels, '" + options.text("pixels") +
                        "', which decode=raw alone can read; leave pixels out of source");
    }
    return entry.make(plan, options);
  }

  DecodePool make_pool(const FeederContext& context) {
    const BatchSpec& spec = context.spec;
    if (spec.pixel != DType::u8 || spec.image.channels != 3) {
      throw ConfigError("the feeder queue writes 8-bit RGB pixels; the model asks for " +
                        std::to_string(8 * size_of(spec.pixel)) + "-bit pixels of " +
                        std::to_string(spec.image.channels) + " channels; choose another model");
    }
    const DecoderEntry& entry = find_entry(decoder_table(), holds_pixels(context) ? "raw" : "jpeg");
    const Options options(entry.name, entry.options,
                          forward(context.options, entry, context.data.augment));
    const DecodePlan plan{.threads = context.threads,
                          .order = context.data.order,
                          .seed = context.seed,
                          .marks = context.marks,
                          .bad_samples_allowed = bad_samples_allowed(context.on_bad_sample)};
    const Nanoseconds extra = parse_extra(context.options);
    const auto make_decoder = [&]() -> std::unique_ptr<Decoder> {
      std::unique_ptr<Decoder> decoder = entry.make(options);
      if (extra == Nanoseconds::zero()) return decoder;
      return std::make_unique<SlowedDecoder>(std::move(decoder), extra);
    };
    return DecodePool(plan, *source_, make_decoder, context.clock, context.probe);
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
