// SPDX-License-Identifier: Apache-2.0
// penstock dataset check: checks whether every sample is usable.
#include <fmt/format.h>

#include <algorithm>

#include "bench/dataset/check_dataset.h"
#include "bench/record/machine.h"
#include "bench/run/job_line.h"
#include "bench/verbs/dataset_words.h"

namespace penstock {
namespace {

constexpr int kStopped = 130, kFoundBad = 1;

void print_result(const dataset::CheckedDataset& checked, const dataset::CheckDataset& order) {
  for (const std::string& reason : checked.reasons) fmt::print("bad: {}\n", reason);
  if (checked.bad > checked.reasons.size()) {
    fmt::print("... and {} more\n", checked.bad - checked.reasons.size());
  }
  const auto present = std::ranges::count_if(checked.labels, [](auto count) { return count > 0; });
  fmt::print(
      "{}: {} samples, {} bad; the others have {:.1f} MB and {} of {} labels; {:.1f} s, {:.0f} "
      "samples/s on {} thread{}\n",
      order.directory, checked.samples, checked.bad, 1e-6 * static_cast<double>(checked.bytes),
      present, checked.labels.size(), checked.seconds,
      static_cast<double>(checked.samples) / std::max(checked.seconds, 1e-9), order.threads,
      order.threads == 1 ? "" : "s");
}

}  // namespace

int check_word(const Invocation& invocation) {
  dataset::CheckDataset order{
      .directory = "data/train", .source = "auto", .threads = usable_cores()};
  const Flag flags[] = {
      word_flag("data-dir", "data set: folder, file, or list of files with braces",
                order.directory),
      word_flag("source", "format and its options, such as tfrecord:crc=false; auto: by file names",
                order.source),
      count_flag("threads", "threads that read and decode", order.threads, 1, 256)};
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
    return kStopped;
  }
  return checked.bad > 0 ? kFoundBad : 0;
}

}  // namespace penstock
