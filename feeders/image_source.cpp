// SPDX-License-Identifier: Apache-2.0
#include "feeders/image_source.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "dataflow/datasets/detect_source.h"
#include "dataflow/datasets/source_over.h"
#include "dataflow/error.h"
#include "feeders/image_decoding.h"

namespace penstock {
namespace {

/// Text of a source that turns each image into what the jpeg decoder would give in evaluation.
ComponentText source_of_pixels(const DecodingFeeder& feeder) {
  const Options& options = feeder.context.options;
  const Augmentation typed = read_augmentation("queue", options), still = evaluation_of(typed);
  if (options.given("crop") && typed.crop != still.crop) {
    throw ConfigError(
        "queue: decode=raw holds one crop of each image, but crop is {}, which is random; expected "
        "{} or full; leave crop out, or use decode=full,source=memory",
        name_of(typed.crop), name_of(still.crop));
  }
  if (options.given("color") && typed.colour != still.colour) {
    throw ConfigError(
        "queue: decode=raw holds the colours of each image, but color is {}, which is random; "
        "leave color out, or use decode=full,source=memory",
        options.text("color"));
  }
  const std::string& source = options.text("source");
  ComponentText text = parse_component(source == "auto" ? "memory" : source);
  ComponentText decoder = decoder_text(feeder, find_entry(decoder_table(), "jpeg"), false);
  std::erase_if(decoder.values, [](const auto& value) { return value.first == "decode"; });
  text.values.emplace_back("pixels", component_text(decoder));
  return text;
}

std::unique_ptr<Source> read_files(std::unique_ptr<Source> source, bool whole_files,
                                   const FeederContext& context) {
  const std::string& way = context.options.text("io");
  if (way.empty()) return source;
  const FileList* const files = source->facts().files;
  if (files == nullptr || files->size() == 0) {
    throw ConfigError(
        "queue: option 'io' is '{}', and the source reads no files while it runs; leave the option "
        "out",
        way);
  }
  std::string note;
  std::unique_ptr<FileReader> reader = make_file_reader(way, files->path(0).c_str(), note);
  if (way == "direct" && note.empty()) context.probe.fact("direct_reads", 1);
  if (!note.empty()) context.probe.note(std::move(note));
  return datasets::read_by(std::move(source), std::move(reader), whole_files);
}

std::unique_ptr<Source> read_ahead(std::unique_ptr<Source> source, const Options& options) {
  constexpr std::int64_t kMost = 4096, kMostReaders = 32;
  const std::int64_t samples = options.integer("readahead");
  if (samples < 0 || samples > kMost) {
    throw ConfigError("queue: option 'readahead' is {}; expected 0 to {} samples", samples, kMost);
  }
  if (samples == 0) return source;
  return datasets::read_ahead(
      std::move(source), {.samples = static_cast<std::size_t>(samples),
                          .bytes = std::uint64_t{256} << 20,
                          .readers = static_cast<std::int32_t>(std::min(samples, kMostReaders))});
}

}  // namespace

std::unique_ptr<Source> make_image_source(const FeederContext& context) {
  const DecodingFeeder feeder{"queue", context};
  const bool pixels = holds_pixels(feeder);
  const ComponentText text =
      pixels ? source_of_pixels(feeder)
             : datasets::source_text(context.options.text("source"), context.data.directory);
  const SourceEntry& entry = find_entry(source_table(), text.name);
  const bool can_hold_pixels = std::ranges::any_of(
      entry.options, [](const OptionSpec& option) { return option.name == "pixels"; });
  if (pixels && !can_hold_pixels) {
    throw ConfigError(
        "queue: decode=raw reads pixels from memory, but source is '{}'; leave source out, or use "
        "source=memory",
        text.name);
  }
  DataPlan plan = context.data;
  plan.image = context.spec.image;
  plan.threads = context.threads;
  const Options options(entry.name, entry.options, text);
  if (!pixels && can_hold_pixels && options.given("pixels")) {
    throw ConfigError(
        "queue: the source holds pixels, '{}', which only decode=raw can read; leave pixels out of "
        "source",
        options.text("pixels"));
  }
  if (!context.options.flag("repeat_cached_sample")) {
    return read_ahead(read_files(entry.make(plan, options), entry.class_folders, context),
                      context.options);
  }
  const std::unique_ptr<Source> set = read_files(
      entry.make(datasets::plan_of_whole_set(plan), options), entry.class_folders, context);
  return datasets::repeat_first_sample(*set, plan);
}

}  // namespace penstock
