// SPDX-License-Identifier: Apache-2.0
// Real images: a Source's files, read, decoded and augmented by the workers of a DecodePool into
// the slots of a bounded ring. Some sources hold pixels, which are cropped and resized alone; with
// decode=raw one decodes its images before the run.
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dataflow/augmentation.h"
#include "dataflow/decode_pool.h"
#include "dataflow/decoder.h"
#include "dataflow/error.h"
#include "dataflow/io/file_reads.h"
#include "dataflow/normalising_decoder.h"
#include "dataflow/packed/detect_source.h"
#include "dataflow/placement/memory_pages.h"
#include "dataflow/placement/thread_places.h"
#include "dataflow/read_ahead.h"
#include "dataflow/repeated_sample.h"
#include "dataflow/source.h"
#include "feeders/feeder.h"
#include "feeders/normalise_option.h"

namespace penstock {
namespace {

// Those before source are options of the decoders, which explain them; empty: their defaults.
constexpr OptionSpec kOptions[] = {
    {"crop", "",
     "which part of an image [the chain's]; evaluation takes a centre; from sources of pixels also "
     "auto (their default) and padN such as pad4",
     kCropValues},
    {"chain", "", "crop, resize and color at once [torchvision]; each can be given besides",
     kChainValues},
    {"resize", "", "how that part is resized [the chain's]", kResizeValues},
    {"color", "", "how colours are distorted, but in evaluation [the chain's]", kColourValues},
    {"flip", "",
     "mirror every other image, by chance (default true; with decode=raw false; with pixels where "
     "the crop is left to chance)"},
    {"upsampling", "", "fancy (default) or plain"},
    {"max_pixels", "", "refuse larger images (default 178956970)"},
    {"decode", "",
     "region (default): what the crop takes; full: whole images, then the crop; raw: pixels that "
     "lie in memory, decoded and cropped before the run (center, or full)"},
    {"shrink", "",
     "decode regions of twice the batch's size and more at a half or less (default true)"},
    {"engine", "", "what decodes JPEG: auto (default; our own where it can), or libjpeg"},
    {"source", "auto",
     "where images come from, such as memory:limit=512MiB; auto: by the names in --data-dir; with "
     "decode=raw [memory]"},
    kNormaliseOption,
    {"io", "",
     "how files are read: pread, direct (O_DIRECT, past the page cache) or uring (io_uring); "
     "default: image files by read, packed ones as mapped memory"},
    {"readahead", "0",
     "samples that threads of their own (as many, at most 32) read before they are asked for; for "
     "storage that is slow to answer"},
    {"repeat_cached_sample", "false",
     "read the first sample alone and repeat it from memory: decoding without storage"},
    {"threads", "all",
     "of --feeder-threads: all, or auto: as many as it takes until nobody waits for batches, found "
     "out while the run warms up"},
    {"cores", "",
     "keep decode threads on processors: auto, on NUMA nodes in turn, or a list such as 0-3+8"},
    {"numa", "",
     "keep them on those of these NUMA nodes, such as 0 or 0+1; of one alone, slots lie there too"},
    {"extra_us", "0",
     "burn so many microseconds of CPU time for each image in the thread that decodes it: a known "
     "answer for what measures stages"},
};

/// The options among ours that were typed and that the decoder knows. Evaluation takes what stands
/// for the crop there, and neither flips nor distorts.
ComponentText forward(const Options& options, const DecoderEntry& decoder, bool augment) {
  ComponentText typed;
  typed.name = decoder.name;
  for (const OptionSpec& spec : decoder.options) {
    std::string value = options.given(spec.name) ? options.text(spec.name) : std::string();
    if (!augment && spec.name == "crop") {
      value = name_of(evaluation_of(read_augmentation("queue", options)).crop);
    }
    if (!augment && spec.name == "color") value = "none";
    if (!augment && spec.name == "flip") value = "false";
    if (!value.empty()) typed.values.emplace_back(std::string(spec.name), std::move(value));
  }
  return typed;
}

/// The same for a source that gives pixels: evaluation leaves images alone that have the batch's
/// size, unless the centre is what training takes of them as well.
ComponentText forward_to_raw(const Options& options, const DecoderEntry& decoder, bool augment) {
  ComponentText typed = forward(options, decoder, true);
  for (const char* name :
       {"upsampling", "max_pixels", "decode", "shrink", "engine", "chain", "resize", "color"}) {
    if (!options.given(name)) continue;
    throw ConfigError("queue: option '" + std::string(name) +
                      "' is about encoded images, and the source '" +
                      parse_component(options.text("source")).name +
                      "' gives pixels; leave the option out, or choose another source");
  }
  if (augment) return typed;
  std::string crop = options.text("crop");
  if (crop.empty() || crop.starts_with("auto") || crop.starts_with("pad")) {
    crop = "auto-center";
  } else {
    crop = name_of(evaluation_crop(parse_crop("queue", crop)));
  }
  typed.values = {{"crop", crop}, {"flip", "false"}};
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
  const Augmentation typed = read_augmentation("queue", options), still = evaluation_of(typed);
  if (options.given("crop") && typed.crop != still.crop) {
    throw ConfigError("queue: decode=raw holds one crop of each image, and crop is " +
                      std::string(name_of(typed.crop)) + ", which takes chances; expected " +
                      std::string(name_of(still.crop)) +
                      " or full; leave crop out, or take decode=full,source=memory");
  }
  if (options.given("color") && typed.colour != still.colour) {
    throw ConfigError("queue: decode=raw holds the colours of each image, and color is " +
                      options.text("color") +
                      ", which takes chances; leave color out, or take decode=full,source=memory");
  }
  const std::string& source = options.text("source");
  ComponentText text = parse_component(source == "auto" ? "memory" : source);
  ComponentText decoder = forward(options, find_entry(decoder_table(), "jpeg"), false);
  std::erase_if(decoder.values, [](const auto& value) { return value.first == "decode"; });
  text.values.emplace_back("pixels", text_of(decoder));
  return text;
}

/// Evaluation takes all: it is over before anything is found out.
bool chooses_threads(const FeederContext& context) {
  const std::string& text = context.options.text("threads");
  if (text != "all" && text != "auto") {
    throw ConfigError("queue: option 'threads' is '" + text +
                      "'; expected all or auto; --feeder-threads says how many");
  }
  return text == "auto" && context.data.augment;
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
      : probe_(context.probe),
        places_(choose_places(
            context.threads, read_cpu_topology(allowed_cpus()),
            {.cores = context.options.text("cores"), .nodes = context.options.text("numa")})),
        slot_node_(choose_slot_node(context.options.text("numa"))),
        source_(make_source(context)),
        pool_(make_pool(context)) {
    say_places(context);
    if (std::string note = source_->note(); !note.empty()) context.probe.note(std::move(note));
  }

  DataExtent extent() const noexcept override { return {source_->size(), source_->classes()}; }
  const FileList* files() const noexcept override { return source_->files(); }
  bool is_settled() const override { return pool_.is_settled(); }
  void settle() override { pool_.settle(); }
  void run(BatchRing& out, std::stop_token stop) override {
    if (slot_node_) move_slots(out);
    pool_.run(out, std::move(stop));
  }

 private:
  static std::optional<std::int32_t> choose_slot_node(const std::string& nodes) {
    if (nodes.empty()) return std::nullopt;
    const std::vector<std::int32_t> list = parse_cpu_list(nodes, "queue: option 'numa'");
    return list.size() == 1 ? std::optional(list.front()) : std::nullopt;
  }

  void say_places(const FeederContext& context) const {
    if (places_.empty() || !context.data.augment) return;
    std::string note = "decode threads: " + describe_places(places_);
    if (places_.size() < static_cast<std::size_t>(context.threads)) {
      note += "; no more than those, of " + std::to_string(context.threads);
    }
    probe_.note(std::move(note));
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const std::string thread = "decode_thread_" + std::to_string(i);
      probe_.fact(thread + "_core", places_[i].id);
      probe_.fact(thread + "_node", places_[i].node);
    }
  }

  void move_slots(const BatchRing& ring) const {
    for (std::size_t slot = 0; slot < ring.slots(); ++slot) {
      if (move_to_node(ring.memory(slot), *slot_node_)) continue;
      probe_.note("slots stay where they are, the system refuses to move them to NUMA node " +
                  std::to_string(*slot_node_) + ": " + std::strerror(errno));
      return;
    }
  }

  static std::unique_ptr<Source> make_source(const FeederContext& context) {
    const bool pixels = holds_pixels(context);
    const ComponentText text =
        pixels ? source_of_pixels(context.options)
               : source_text(context.options.text("source"), context.data.directory);
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
    const bool whole_files = text.name == "image-folder";
    if (!context.options.flag("repeat_cached_sample")) {
      return read_ahead(read_files(entry.make(plan, options), whole_files, context),
                        context.options);
    }
    const std::unique_ptr<Source> set =
        read_files(entry.make(plan_of_first_sample(plan), options), whole_files, context);
    return repeat_first_sample(*set, plan);
  }

  static std::unique_ptr<Source> read_files(std::unique_ptr<Source> source, bool whole_files,
                                            const FeederContext& context) {
    const std::string& way = context.options.text("io");
    if (way.empty()) return source;
    const FileList* const files = source->files();
    if (files == nullptr || files->size() == 0) {
      throw ConfigError("queue: option 'io' is '" + way +
                        "', and the source reads no files while it runs; leave the option out");
    }
    std::string note;
    std::unique_ptr<FileReader> reader = make_file_reader(way, files->path(0).c_str(), note);
    if (way == "direct" && note.empty()) context.probe.fact("direct_reads", 1);
    if (!note.empty()) context.probe.note(std::move(note));
    return std::make_unique<FileReads>(std::move(source), std::move(reader), whole_files);
  }

  static std::unique_ptr<Source> read_ahead(std::unique_ptr<Source> source,
                                            const Options& options) {
    constexpr std::int64_t kMost = 4096, kMostReaders = 32;
    const std::int64_t samples = options.integer("readahead");
    if (samples < 0 || samples > kMost) {
      throw ConfigError("queue: option 'readahead' is " + std::to_string(samples) +
                        "; expected 0 to " + std::to_string(kMost) + " samples");
    }
    if (samples == 0) return source;
    return std::make_unique<ReadAhead>(
        std::move(source),
        ReadAhead::Plan{.samples = static_cast<std::size_t>(samples),
                        .bytes = std::uint64_t{256} << 20,
                        .readers = static_cast<std::int32_t>(std::min(samples, kMostReaders))});
  }

  static ComponentText decoder_options(const FeederContext& context, const DecoderEntry& decoder,
                                       bool pixels) {
    const bool augment = context.data.augment;
    if (!pixels) return forward(context.options, decoder, augment);
    if (!holds_pixels(context)) return forward_to_raw(context.options, decoder, augment);
    // The crop was taken before the run.
    ComponentText text{std::string(decoder.name), {{"crop", "full"}}};
    const bool flip = augment && context.options.given("flip") && context.options.flag("flip");
    text.values.emplace_back("flip", flip ? "true" : "false");
    return text;
  }

  DecodePool make_pool(const FeederContext& context) {
    const BatchSpec& spec = context.spec;
    check_normalised(context.options, spec);
    if (spec.image.channels != 3) {
      throw ConfigError("the feeder queue writes RGB pixels; the model asks for " +
                        std::to_string(spec.image.channels) + " channels; choose another model");
    }
    const bool pixels = source_->kind() == SampleKind::pixels;
    const DecoderEntry& entry = find_entry(decoder_table(), pixels ? "raw" : "jpeg");
    const Options options(entry.name, entry.options, decoder_options(context, entry, pixels));
    const DecodePlan plan{
        .threads = places_.empty() ? context.threads : static_cast<std::int32_t>(places_.size()),
        .choose_threads = chooses_threads(context),
        .places = places_,
        .order = context.data.order,
        .seed = context.seed,
        .marks = context.marks,
        .bad_samples_allowed = bad_samples_allowed(context.on_bad_sample)};
    const Nanoseconds extra = parse_extra(context.options);
    const auto make_decoder = [&]() -> std::unique_ptr<Decoder> {
      std::unique_ptr<Decoder> decoder = entry.make(options);
      if (spec.normalised) decoder = make_normalising_decoder(std::move(decoder));
      if (extra == Nanoseconds::zero()) return decoder;
      return std::make_unique<SlowedDecoder>(std::move(decoder), extra);
    };
    return DecodePool(plan, *source_, make_decoder, context.clock, context.probe);
  }

  Probe& probe_;
  const std::vector<Cpu> places_;  // of the pool's threads; empty: wherever the kernel likes
  const std::optional<std::int32_t> slot_node_;
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
    .shape_batches = normalise_batches,
    .make = make,
};

}  // namespace penstock
