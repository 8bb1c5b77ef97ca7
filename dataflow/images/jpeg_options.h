// SPDX-License-Identifier: Apache-2.0
// The options of the decoder `jpeg`. Feeders that decode have the same options, and pass on what
// was typed: a decoder of pixels has other defaults.
#pragma once

#include "dataflow/images/augmentation.h"
#include "dataflow/images/nvjpeg.h"
#include "dataflow/options.h"

namespace penstock {

inline constexpr OptionSpec kJpegOptions[] = {
    {"crop", "",
     "part of the image to take, in evaluation its centre; sources of pixels also have auto (their "
     "default) and padN such as pad4 [that of chain]",
     kCropValues},
    {"chain", "torchvision", "sets crop, resize and color at once; each can be overridden",
     kChainValues},
    {"resize", "", "method of resizing [that of chain]", kResizeValues},
    {"color", "", "colour distortion, not in evaluation [that of chain]", kColourValues},
    {"flip", "true",
     "mirror half of the images at random; with decode=raw the default is false, with pixels it is "
     "true if the crop is random"},
    {"upsampling", "fancy", "chroma upsampling: fancy (smooth) or plain (faster)"},
    {"max_pixels", "178956970",
     "most pixels of an image; larger images are refused"},  // PIL's limit
    {"decode", "region",
     "what to decode: region (the crop only), full (the whole image, then crop) or, in a feeder, "
     "raw "
     "(before the run, into memory; crop is center or full)"},
    {"shrink", "true", "decode regions of at least twice the output size at a reduced scale"},
    {"engine", "auto", "JPEG decoder", jpeg::kEngines},
};

}  // namespace penstock
