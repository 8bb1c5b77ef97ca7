// SPDX-License-Identifier: Apache-2.0
// penstock dataset: makes a synthetic data set; inspects, checks, converts and indexes data sets of
// any format.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/cli.h"
#include "bench/dataset/check_dataset.h"
#include "bench/dataset/contact_sheet.h"
#include "bench/dataset/convert_dataset.h"
#include "bench/dataset/coverage.h"
#include "bench/dataset/inspect_dataset.h"
#include "bench/dataset/make_dataset.h"
#include "bench/record/exit_code.h"
#include "bench/record/machine.h"
#include "bench/run/observe/progress_line.h"
#include "dataflow/datasets/manifest.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

constexpr FlagGroup flag;

int make(const Invocation& invocation) {
  constexpr std::int64_t kMany = 10'000'000;
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  dataset::MakeDataset order;
  order.threads = usable_cores();
  dataset::DatasetParameters& parameters = order.parameters;
  bool brief = false;
  const Flag flags[] = {
      flag.text("data_dir", "folder for the folders train and val", order.directory),
      flag.count("images", "training images", parameters.images, 1, kMany),
      flag.count("val_images", "validation images", parameters.val_images, 1, kMany),
      flag.count("classes", "number of classes", parameters.classes, 1, dataset::most_classes()),
      flag.count("seed", "seed of the pictures", parameters.seed, 0, kLargest),
      flag.count("quality", "JPEG quality, 1 to 100", parameters.quality, 1, 100),
      flag.count("threads", "threads that draw and encode", order.threads, 1, 256),
      flag.boolean("force", "replace train and val if they exist", order.force),
      flag.boolean("brief", "print one line on stderr only", brief)};
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
      announce(order);
    } else if (!brief) {
      line.update("making photographs", static_cast<std::uint64_t>(done),
                  static_cast<std::uint64_t>(total), "images");
    }
  };
  const dataset::MadeDataset made = dataset::make_dataset(order, invocation.stop);
  line.clear();
  if (made.outcome == dataset::MadeDataset::Outcome::stopped) {
    fmt::print(stderr, "penstock: stopped; nothing of {} was kept\n", order.directory);
    return exit_code_of_stop();
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
      flag.text("data_dir", "folder of class folders, or a packed data set", order.directory),
      flag.text("source", "format and its options, such as tfrecord:crc=false; auto: by file names",
                order.source),
      flag.text("contact_sheet", "file for a PNG with a few images of every class; default: none",
                sheet),
      flag.boolean("json", "print one JSON object, with everything unusual", json)};
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
  if (invocation.stop.stop_requested()) return exit_code_of_stop();
  if (json) {
    fmt::print("{}\n", dataset::to_json(inventory).dump(2));
  } else {
    fmt::print("{}", dataset::to_text(inventory));
  }
  return 0;
}

void print_result(const dataset::CheckedDataset& checked, const dataset::CheckDataset& order) {
  std::uint64_t unsaid = checked.bad - checked.reasons.size();
  for (const std::string& reason : checked.reasons) fmt::print("bad: {}\n", reason);
  for (const auto& [format, other] : checked.other_formats) {
    fmt::print(
        "bad: {} samples, such as '{}': each looks like {}; expected JPEG or PNG; convert them\n",
        other.samples, other.example, format);
    unsaid -= other.samples;
  }
  if (unsaid > 0) fmt::print("... and {} more\n", unsaid);
  if (!checked.note.empty()) fmt::print("note: {}\n", checked.note);
  const auto present = std::ranges::count_if(checked.labels, [](auto count) { return count > 0; });
  fmt::print(
      "{}: {} samples, {} bad; the others have {:.1f} MB and {} of {} labels; {:.1f} s, {:.0f} "
      "samples/s on {} thread{}\n",
      order.directory, checked.samples, checked.bad, 1e-6 * static_cast<double>(checked.bytes),
      present, checked.labels.size(), checked.seconds,
      static_cast<double>(checked.samples) / std::max(checked.seconds, 1e-9), order.threads,
      order.threads == 1 ? "" : "s");
}

int check_word(const Invocation& invocation) {
  dataset::CheckDataset order{
      .directory = "data/train", .source = "auto", .threads = usable_cores()};
  const Flag flags[] = {
      flag.text("data_dir", "data set: folder, file, or list of files with braces",
                order.directory),
      flag.text("source", "format and its options, such as tfrecord:crc=false; auto: by file names",
                order.source),
      flag.count("threads", "threads that read and decode", order.threads, 1, 256)};
  if (!parse_flags({.verb = "dataset check",
                    .summary = "Reads every byte and decodes every image of a data set. Exits with "
                               "1 if a sample is bad.",
                    .examples = "dataset check --data-dir my/images\n"
                                "dataset check --data-dir 'shards/train-{0000..0015}.tar'"},
                   flags, invocation.arguments)) {
    return 0;
  }
  JobLine line(stderr);
  order.on_progress = [&line](std::uint64_t done, std::uint64_t total, std::uint64_t bad) {
    line.update("checking", done, total, fmt::format("samples, {} bad", bad));
  };
  const dataset::CheckedDataset checked = dataset::check_dataset(order, invocation.stop);
  line.clear();
  print_result(checked, order);
  if (checked.stopped) {
    fmt::print(stderr, "penstock: stopped; the remaining samples were not checked\n");
    return exit_code_of_stop();
  }
  return checked.bad > 0 ? 1 : 0;
}

std::string words() {
  std::vector<std::string> names;
  for (const datasets::DatasetWriterEntry* entry : datasets::dataset_writer_table().entries) {
    names.emplace_back(entry->name);
  }
  return join(names);
}

void print_result(const dataset::ConvertDataset& order, const datasets::DatasetWriterEntry& to,
                  const dataset::ConvertedDataset& converted) {
  for (const std::string& reason : converted.left_out) fmt::print("left out: {}\n", reason);
  const std::string before =
      converted.bytes_before == 0  // not known of samples that were read into memory
          ? std::string()
          : fmt::format(" from {:.1f} MB", 1e-6 * static_cast<double>(converted.bytes_before));
  fmt::print("{}: {} samples{}, read back and equal; {:.1f} MB{}\n", order.out, converted.samples,
             converted.left_out.empty() ? std::string()
                                        : fmt::format(" ({} left out)", converted.left_out.size()),
             1e-6 * static_cast<double>(converted.bytes_after), before);
  const double samples = static_cast<double>(converted.samples);
  fmt::print(
      "writing took {:.2f} s; reading{} an epoch on one thread, as far as files are cached, took "
      "{:.3f} s ({:.1f} us a sample), reading what was written takes {:.3f} s ({:.1f} us)\n",
      converted.write_s, to.image_size > 0 ? " and decoding" : "", converted.read_before_s,
      1e6 * converted.read_before_s / samples, converted.read_after_s,
      1e6 * converted.read_after_s / samples);
  const double payback = converted.payback_epochs();
  if (payback < 0) {
    fmt::print("reading is not faster: the conversion helps only if files are not cached\n");
  } else {
    fmt::print("the time of writing is saved after {:.1f} epochs of reading\n", payback);
  }
}

int convert_word(const Invocation& invocation) {
  dataset::ConvertDataset order{
      .directory = "data/train", .source = "auto", .threads = usable_cores()};
  std::string to, shard_size = "256MiB";
  const Flag flags[] = {
      flag.text("data_dir", "data set: folder, file, or list of files with braces",
                order.directory),
      flag.text("source", "format and its options; auto: by file names", order.source),
      flag.text("to", "format to write, with its options: " + words(), to),
      flag.text("out", "folder to write, which must not exist", order.out),
      flag.text("shard_size", "size of a file, such as 256MiB", shard_size),
      flag.count("shards", "number of files, instead of --shard-size; 0: by size", order.shards, 0,
                 1'000'000),
      flag.count("image_size",
                 "height and width of formats that store pixels; 0: the format's default",
                 order.image_size, 0, 4096),
      flag.boolean("shuffle", "write the samples in random order", order.shuffle),
      flag.count("seed", "seed of that order", order.seed, 0, 1'000'000'000),
      flag.boolean("skip_bad_samples", "skip samples that cannot be read", order.skips_bad)};
  if (!parse_flags({.verb = "dataset convert",
                    .summary = "Writes the samples of a data set in another format, reads them "
                               "back and compares them.",
                    .examples = "dataset convert --data-dir my/images --to tfrecord --out records\n"
                                "dataset convert --data-dir my/images --to raw --image-size 256 "
                                "--out pixels\n"
                                "dataset convert --data-dir my/images --to "
                                "lmdb:format=datapoint --out database"},
                   flags, invocation.arguments)) {
    return 0;
  }
  if (to.empty()) throw ConfigError("--to is not stated; expected one of " + words());
  if (order.out.empty()) throw ConfigError("--out is not stated; expected a new folder");
  order.options = parse_component(to);
  const datasets::DatasetWriterEntry& writer =
      find_entry(datasets::dataset_writer_table(), order.options.name);
  order.shard_bytes = parse_bytes(shard_size, "--shard-size");
  JobLine line(stderr);
  order.on_progress = [&](std::string_view phase, std::uint64_t done, std::uint64_t total) {
    line.update(phase, done, total, "samples");
  };
  const dataset::ConvertedDataset converted =
      dataset::convert_dataset(order, writer, invocation.stop);
  line.clear();
  if (converted.stopped) {
    fmt::print(stderr, "penstock: stopped; nothing of {} was kept\n", order.out);
    return exit_code_of_stop();
  }
  print_result(order, writer, converted);
  return 0;
}

int index_word(const Invocation& invocation) {
  std::string directory = "data/train", out;
  const Flag flags[] = {flag.text("data_dir", "folder of class folders", directory),
                        flag.text("out",
                                  "file to write, for queue:source='image-folder:manifest=FILE'; "
                                  "default: .penstock-manifest in the folder, which runs find",
                                  out)};
  if (!parse_flags({.verb = "dataset index",
                    .summary = "Saves the list of files of an image folder. Runs read it instead "
                               "of listing the folder, until a class folder changes.",
                    .examples = "dataset index --data-dir my/images"},
                   flags, invocation.arguments)) {
    return 0;
  }
  if (out.empty()) out = datasets::default_manifest(directory);
  const auto began = std::chrono::steady_clock::now();
  const std::optional<datasets::WrittenManifest> written =
      datasets::write_manifest(directory, out, invocation.stop);
  if (!written) {
    fmt::print(stderr, "penstock: stopped; nothing was written\n");
    return exit_code_of_stop();
  }
  if (!written->note.empty()) fmt::print("note: {}\n", written->note);
  fmt::print(
      "{}: {} files of {} classes, {:.1f} MB, {:.1f} bytes a file; listing and writing took {:.2f} "
      "s\n",
      out, written->files, written->classes, 1e-6 * static_cast<double>(written->bytes),
      static_cast<double>(written->bytes) / static_cast<double>(written->files),
      to_seconds(std::chrono::steady_clock::now() - began));
  return 0;
}

int coverage_word(const Invocation& invocation) {
  std::vector<std::string> files;
  if (!parse_flags(
          {.verb = "dataset coverage",
           .summary = "Tells whether each sample was seen exactly once in each epoch, from "
                      "the files that --fake-location queue:coverage=FILE wrote, of all "
                      "ranks or shards. Exits with 6 if not.",
           .examples = "dataset coverage seen.json.0 seen.json.1",
           .arguments = "FILE..."},
          {}, invocation.arguments, &files)) {
    return 0;
  }
  if (files.empty()) {
    throw ConfigError("dataset coverage needs the files that queue:coverage=FILE wrote");
  }
  const dataset::Coverage coverage = dataset::read_coverage({files.begin(), files.end()});
  fmt::print("{}", dataset::to_text(coverage));
  return coverage.is_exact() ? 0 : 6;
}

constexpr VerbEntry kEntries[] = {
    {"make", "make a synthetic data set of photograph-like JPEGs", make},
    {"inspect", "report the images, classes and sizes of a data set", inspect},
    {"check", "read and decode every sample, and list the bad ones", check_word},
    {"convert", "write a data set in another format", convert_word},
    {"index", "save the list of files of an image folder, so that runs start faster", index_word},
    {"coverage", "tell whether all processes together saw each sample exactly once",
     coverage_word}};
constexpr const VerbEntry* kWords[] = {&kEntries[0], &kEntries[1], &kEntries[2],
                                       &kEntries[3], &kEntries[4], &kEntries[5]};
constexpr Table<VerbEntry> kWordTable{"dataset word", kWords, {}};

int run(const Invocation& invocation) {
  if (invocation.arguments.empty()) {
    throw ConfigError(
        "penstock dataset needs a word: make, inspect, check, convert, index or coverage");
  }
  const std::string& word = invocation.arguments.front();
  if (word == "--help" || word == "--help-all" || word == "-h") {
    fmt::print(
        "Makes, inspects, checks, converts and indexes data sets.\n\n"
        "Usage: penstock dataset WORD [flags]\n\n");
    for (const VerbEntry& entry : kEntries) fmt::print("  {:<8} {}\n", entry.name, entry.summary);
    fmt::print("\nSee `penstock dataset WORD --help` for the flags of each.\n");
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
