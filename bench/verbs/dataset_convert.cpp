// SPDX-License-Identifier: Apache-2.0
// penstock dataset convert: converts a data set to another format, and says how much time that
// saves.
#include <fmt/format.h>

#include <cstdio>

#include "bench/dataset/convert_dataset.h"
#include "bench/record/machine.h"
#include "bench/run/job_line.h"
#include "bench/verbs/dataset_words.h"

namespace penstock {
namespace {

constexpr int kStopped = 130;

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
  fmt::print("{}: {} samples{}, read back and equal; {:.1f} MB from {:.1f} MB\n", order.out,
             converted.samples,
             converted.left_out.empty() ? std::string()
                                        : fmt::format(" ({} left out)", converted.left_out.size()),
             1e-6 * static_cast<double>(converted.bytes_after),
             1e-6 * static_cast<double>(converted.bytes_before));
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

}  // namespace

int convert_word(const Invocation& invocation) {
  dataset::ConvertDataset order{
      .directory = "data/train", .source = "auto", .threads = usable_cores()};
  std::string to, shard_size = "256MiB";
  const Flag flags[] = {
      word_flag("data-dir", "data set: folder, file, or list of files with braces",
                order.directory),
      word_flag("source", "format and its options; auto: by file names", order.source),
      word_flag("to", "format to write: " + words(), to),
      word_flag("out", "folder to write, which must not exist", order.out),
      word_flag("shard-size", "size of a file, such as 256MiB", shard_size),
      count_flag("shards", "number of files, instead of --shard-size; 0: by size", order.shards, 0,
                 1'000'000),
      count_flag("image-size",
                 "height and width of formats that store pixels; 0: the format's default",
                 order.image_size, 0, 4096),
      boolean_flag("shuffle", "write the samples in random order", order.shuffle),
      count_flag("seed", "seed of that order", order.seed, 0, 1'000'000'000),
      boolean_flag("skip-bad-samples", "skip samples that cannot be read", order.skips_bad)};
  if (!parse_flags({.verb = "dataset convert",
                    .summary = "Writes the samples of a data set in another format, reads them "
                               "back and compares them.",
                    .examples = "dataset convert --data-dir my/images --to tfrecord --out records\n"
                                "dataset convert --data-dir my/images --to raw --image-size 256 "
                                "--out pixels"},
                   flags, invocation.arguments)) {
    return 0;
  }
  if (to.empty()) throw ConfigError("--to is not stated; expected one of " + words());
  if (order.out.empty()) throw ConfigError("--out is not stated; expected a new folder");
  const datasets::DatasetWriterEntry& writer = find_entry(datasets::dataset_writer_table(), to);
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
    return kStopped;
  }
  print_result(order, writer, converted);
  return 0;
}

}  // namespace penstock
