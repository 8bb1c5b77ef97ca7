// SPDX-License-Identifier: Apache-2.0
// WebDataset tars: every sample, of the archive unchanged and with every checksum set right.
#include "dataflow/datasets/webdataset.h"

#include <cstdint>
#include <string>

#include "tests/fuzz/target.h"
#include "tests/support/tar_writer.h"

namespace penstock::fuzz {
namespace {

std::size_t count_samples(std::span<const std::byte> bytes) {
  static const datasets::WebDatasetRules kRules[] = {
      {{"jpg", "png"}, "cls", ""}, {{"jpg"}, "json", "label"}, {{"jpg"}, "", ""}};
  std::size_t whole = 0;
  for (const datasets::WebDatasetRules& rules : kRules) {
    datasets::MemoryStream stream(bytes);
    datasets::WebDatasetReader reader(stream, rules);
    std::uint64_t end = 0;
    bool lost = false;
    for (datasets::WebDatasetSample sample; reader.next(sample);) {
      ensure(!lost, "a sample behind the end");
      ensure(sample.begin >= end && sample.end >= sample.begin && sample.end <= bytes.size(),
             "samples that overlap");
      end = sample.end;
      lost = sample.is_last;
      ensure(sample.problem.empty() == (sample.label >= 0), "a damaged sample with a label");
      if (!sample.problem.empty()) continue;
      ensure(sample.image_at >= sample.begin && sample.image_bytes > 0 &&
                 sample.image_at + sample.image_bytes <= sample.end,
             "an image outside its sample");
      ++whole;
    }
  }
  return whole;
}

}  // namespace

std::size_t webdataset(std::span<const std::byte> input) {
  std::string text(as_text(input));
  for (std::size_t at = 0; at + 512 <= text.size(); at += 512) set_tar_sum(text.data() + at);
  return count_samples(input) + count_samples(std::as_bytes(std::span(text)));
}

}  // namespace penstock::fuzz
