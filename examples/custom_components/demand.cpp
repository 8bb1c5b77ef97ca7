// SPDX-License-Identifier: Apache-2.0
// A verb in one file: prints how many bytes of pixels a model needs at a given rate.
//   penstock_custom demand --model resnet50 --img-per-s 3571
#include <fmt/format.h>

#include "bench/cli.h"
#include "dataflow/options.h"
#include "trainer/model.h"

namespace penstock {
namespace {

int run(const Invocation& invocation) {
  std::string model = "resnet50";
  double img_per_s = 1000;
  const Flag flags[] = {
      {.name = "model",
       .help = "the model whose images are counted",
       .fallback = model,
       .set = [&](const std::string& text) { model = text; }},
      {.name = "img-per-s",
       .help = "images per second that it trains",
       .fallback = "1000",
       .set = [&](const std::string& text) { img_per_s = parse_real(text, "--img-per-s"); }}};
  if (!parse_flags({.verb = "demand",
                    .summary = "Prints the bytes of pixels that a model takes per second."},
                   flags, invocation.arguments)) {
    return 0;
  }
  const ImageShape& image = find_entry(model_table(), model).image;
  fmt::print("{} takes {:.0f} MB of pixels per second\n", model,
             img_per_s * image.height * image.width * image.channels / 1e6);
  return 0;
}

}  // namespace

extern constinit const VerbEntry demand_verb{
    .name = "demand",
    .summary = "the bytes of pixels that a model takes per second",
    .run = run,
};

}  // namespace penstock
