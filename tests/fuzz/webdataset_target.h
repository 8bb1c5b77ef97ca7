// SPDX-License-Identifier: Apache-2.0
// What the fuzzer and its deterministic twin do with the bytes of a tar: go through its samples, as
// they are and with every checksum set right. Throws std::logic_error where an answer contradicts
// itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "dataflow/packed/webdataset.h"
#include "tests/support/tar_writer.h"

namespace penstock {

/// How many whole samples there are.
inline int count_webdataset_samples(std::span<const std::byte> bytes) {
  static const WebDatasetRules kRules[] = {
      {{"jpg", "png"}, "cls", ""}, {{"jpg"}, "json", "label"}, {{"jpg"}, "", ""}};
  int whole = 0;
  for (const WebDatasetRules& rules : kRules) {
    MemoryStream stream(bytes);
    WebDatasetReader reader(stream, rules);
    std::uint64_t end = 0;
    bool lost = false;
    for (WebDatasetSample sample; reader.next(sample);) {
      if (lost) throw std::logic_error("a sample behind the end");
      if (sample.begin < end || sample.end < sample.begin || sample.end > bytes.size()) {
        throw std::logic_error("samples that overlap");
      }
      end = sample.end;
      lost = sample.is_last;
      if (sample.problem.empty() != (sample.label >= 0)) {
        throw std::logic_error("a damaged sample with a label");
      }
      if (!sample.problem.empty()) continue;
      if (sample.image_at < sample.begin || sample.image_bytes == 0 ||
          sample.image_at + sample.image_bytes > sample.end) {
        throw std::logic_error("an image outside its sample");
      }
      ++whole;
    }
  }
  return whole;
}

inline int try_webdataset(std::span<const std::byte> bytes) {
  const int whole = count_webdataset_samples(bytes);
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (std::size_t at = 0; at + 512 <= text.size(); at += 512) set_tar_sum(text.data() + at);
  return whole + count_webdataset_samples(std::as_bytes(std::span(text)));
}

/// Archives of ustar, GNU tar and pax.
inline std::vector<std::vector<std::byte>> webdataset_corpus() {
  const std::string pax = tar_member({.name = "x", .type = 'x'}, "12 path=a.b\n10 size=3\n");
  const std::string gnu = tar_member({.name = "L", .type = 'L'}, "long/name.json");
  std::vector<std::vector<std::byte>> corpus;
  for (const std::string& text :
       {tar_file("a.jpg", "JPG") + tar_file("a.cls", "1") + std::string(1024, '\0'),
        gnu + tar_file("", "{\"label\": 3}") + tar_file("long/name.jpg", "JPG"),
        pax + tar_file("a.jpg", "JPG") + tar_file("b.png", "PNG")}) {
    const auto bytes = std::as_bytes(std::span(text));
    corpus.emplace_back(bytes.begin(), bytes.end());
  }
  return corpus;
}

}  // namespace penstock
