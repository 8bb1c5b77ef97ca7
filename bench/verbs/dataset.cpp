// SPDX-License-Identifier: Apache-2.0
// penstock dataset: makes a synthetic data set, and inspects data sets of any format. Other
// subcommands are in separate files.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <limits>

#include "bench/dataset/contact_sheet.h"
#include "bench/dataset/inspect_dataset.h"
#include "bench/dataset/make_dataset.h"
#include "bench/record/machine.h"
#include "bench/run/job_line.h"
#include "bench/verbs/dataset_words.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

int make(const Invocation& invocation) {
  constexpr std::int64_t kMany = 10'000'000;
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  dataset::MakeDataset order;
  order.threads = usable_cores();
  dataset::DatasetParameters& parameters = order.parameters;
  bool brief = false;
  const Flag flags[] = {
      word_flag("data-dir", "folder for the folders train and val", order.directory),
      count_flag("images", "training images", parameters.images, 1, kMany),
      count_flag("val-images", "validation images", parameters.val_images, 1, kMany),
      count_flag("classes", "number of classes", parameters.classes, 1, dataset::most_classes()),
      count_flag("seed", "seed of the pictures", parameters.seed, 0, kLargest),
      count_flag("quality", "JPEG quality, 1 to 100", parameters.quality, 1, 100),
      count_flag("threads", "threads that draw and encode", order.threads, 1, 256),
      boolean_flag("force", "replace train and val if they exist", order.force),
      boolean_flag("brief", "print one line on stderr only", brief)};
  if (!parse_flags({.verb = "dataset make",
                    .summary = "Makes a synthetic data set of photograph-like JPEGs.",
                    .examples = "dataset make\n"
                                "dataset make --data-dir my-data --images 1000 --classes 10"},
                   flags, invocation.arguments)) {
    return 0;
  }
  JobLine line(stderr);
  order.on_progress = [&](std::int64_t done, std::int64_t total) {
    if (done == 0) {  // images are really made: they were not there already
      fmt::print(stderr, "penstock: making {} + {} synthetic photographs in {}, about {:.0f} s\n",
                 parameters.images, parameters.val_images, order.directory,
                 std::ceil(dataset::estimated_seconds(parameters, order.threads)));
    } else if (!brief) {
      line.update("making photographs", static_cast<std::uint64_t>(done),
                  static_cast<std::uint64_t>(total), "images");
    }
  };
  const dataset::MadeDataset made = dataset::make_dataset(order, invocation.stop);
  line.clear();
  if (made.outcome == dataset::MadeDataset::Outcome::stopped) {
    fmt::print(stderr, "penstock: stopped; nothing of {} was kept\n", order.directory);
    return 130;
  }
  if (brief) return 0;
  if (made.outcome == dataset::MadeDataset::Outcome::already_there) {
    fmt::print("{}: already there, made from the same parameters\n", order.directory);
  } else {
    const std::int64_t images = parameters.images + parameters.val_images;
    fmt::print("{}: {} images of {} classes, {:.1f} MB, {:.1f} kB each\n", order.directory, images,
               parameters.classes, 1e-6 * static_cast<double>(made.bytes),
               1e-3 * static_cast<double>(made.bytes) / static_cast<double>(images));
  }
  return 0;
}

int inspect(const Invocation& invocation) {
  dataset::InspectDataset order{.directory = "data/train"};
  std::string sheet;
  bool json = false;
  const Flag flags[] = {
      word_flag("data-dir", "folder of class folders, or a packed data set", order.directory),
      word_flag("source", "format and its options, such as tfrecord:crc=false; auto: by file names",
                order.source),
      word_flag("contact-sheet", "file for a PNG with a few images of every class; default: none",
                sheet),
      boolean_flag("json", "print one JSON object, with everything unusual", json)};
  if (!parse_flags({.verb = "dataset inspect",
                    .summary = "Reports the images, classes and sizes of a data set, and what is "
                               "unusual about it.",
                    .examples = "dataset inspect --data-dir my/images\n"
                                "dataset inspect --data-dir my/images --contact-sheet sheet.png"},
                   flags, invocation.arguments)) {
    return 0;
  }
  dataset::DatasetInventory inventory = dataset::inspect_dataset(order, invocation.stop);
  if (!sheet.empty() && !invocation.stop.stop_requested()) {
    dataset::write_contact_sheet(inventory, sheet, invocation.stop);
  }
  if (invocation.stop.stop_requested()) return 130;
  if (json) {
    fmt::print("{}\n", dataset::to_json(inventory).dump(2));
  } else {
    fmt::print("{}", dataset::to_text(inventory));
  }
  return 0;
}

constexpr std::string_view kHelp =
    "Makes, inspects, checks, converts and indexes data sets.\n\n"
    "Usage: penstock dataset WORD [flags]\n\n"
    "  make     make a synthetic data set of photograph-like JPEGs\n"
    "  inspect  report the images, classes and sizes of a data set\n"
    "  check    read and decode every sample, and list the bad ones\n"
    "  convert  write a data set in another format\n"
    "  index    save the list of files of an image folder, so that runs start faster\n\n"
    "See `penstock dataset WORD --help` for the flags of each.\n";

constexpr VerbEntry kMake{.name = "make", .summary = "", .run = make};
constexpr VerbEntry kInspect{.name = "inspect", .summary = "", .run = inspect};
constexpr VerbEntry kCheck{.name = "check", .summary = "", .run = check_word};
constexpr VerbEntry kConvert{.name = "convert", .summary = "", .run = convert_word};
constexpr VerbEntry kIndex{.name = "index", .summary = "", .run = index_word};
constexpr const VerbEntry* kWords[] = {&kMake, &kInspect, &kCheck, &kConvert, &kIndex};
constexpr Table<VerbEntry> kWordTable{"dataset word", kWords, {}};

int run(const Invocation& invocation) {
  if (invocation.arguments.empty()) {
    throw ConfigError("penstock dataset needs a word: make, inspect, check, convert or index");
  }
  const std::string& word = invocation.arguments.front();
  if (word == "--help" || word == "--help-all" || word == "-h") {
    fmt::print("{}", kHelp);
    return 0;
  }
  Invocation rest = invocation;
  rest.arguments.erase(rest.arguments.begin());
  return find_entry(kWordTable, word).run(rest);
}

}  // namespace

extern constinit const VerbEntry dataset_verb{
    .name = "dataset",
    .summary = "make, inspect, check, convert and index data sets",
    .run = run,
};

}  // namespace penstock
