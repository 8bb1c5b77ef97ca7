// SPDX-License-Identifier: Apache-2.0
#include "bench/dataset/open_dataset.h"

#include <fmt/format.h>

#include <cstdio>

#include "dataflow/datasets/detect_source.h"
#include "dataflow/datasets/shard_list.h"
#include "dataflow/entry.h"
#include "dataflow/options.h"

namespace penstock::dataset {

std::unique_ptr<Source> open_dataset(const OpenDataset& order) {
  constexpr std::int32_t kMostClasses = 1'000'000;  // a limit, so that callers can count classes
  const ComponentText text = datasets::source_text(order.source, order.directory);
  const SourceEntry& entry = find_entry(source_table(), text.name);
  if (const std::string other = datasets::validation_set(order.directory); !other.empty()) {
    fmt::print(stderr,
               "penstock: of the two sets in '{0}' the training set is read; --data-dir '{0}/{1}' "
               "names the other\n",
               order.directory, other);
  }
  return entry.make({.directory = order.directory,
                     .epochs = 1,
                     .shuffle = order.shuffle,
                     .seed = order.seed,
                     .classes = kMostClasses,
                     .threads = order.threads,
                     .stop = order.stop},
                    Options(entry.name, entry.options, text));
}

std::unique_ptr<Decoder> make_whole_image_decoder(SampleKind kind) {
  const ComponentText text =
      parse_component(kind == SampleKind::pixels ? "raw:crop=full,flip=false"
                                                 : "jpeg:crop=full,flip=false,decode=full");
  const DecoderEntry& entry = find_entry(decoder_table(), text.name);
  return entry.make(Options(entry.name, entry.options, text));
}

}  // namespace penstock::dataset
