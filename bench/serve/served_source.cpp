// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/served_source.h"

#include <string>

#include "dataflow/datasets/detect_source.h"
#include "dataflow/error.h"
#include "dataflow/options.h"
#include "feeders/image_decoding.h"
#include "feeders/image_source.h"

namespace penstock::serve {
namespace {

constexpr auto kDecodingOptions = joined_options(kJpegOptions, kDecodePoolOptions);

}  // namespace

std::unique_ptr<Source> make_served_source(const FeederEntry& feeder,
                                           const FeederContext& context) {
  if (!feeder.decodes_samples) {
    throw ConfigError(
        "--encoded sends image files, and --fake-location {} makes pixels; expected queue, such as "
        "queue:source=tfrecord; or leave --encoded out",
        feeder.name);
  }
  for (const OptionSpec& option : kDecodingOptions) {
    if (!context.options.given(option.name)) continue;
    const std::string name(option.name);
    throw ConfigError(
        "--encoded sends image files as they are, and option '{}' is about decoding them; give it "
        "to the consumer, as zmq-consume:encoded=true,{}={}",
        name, name, context.options.text(name));
  }
  std::unique_ptr<Source> source = make_image_source(context);
  if (source->facts().kind == SampleKind::encoded) return source;
  throw ConfigError(
      "--encoded sends image files, and the source '{}' gives pixels; expected one of encoded "
      "images, such as tfrecord; or leave --encoded out",
      datasets::source_text(context.options.text("source"), context.data.directory).name);
}

}  // namespace penstock::serve
