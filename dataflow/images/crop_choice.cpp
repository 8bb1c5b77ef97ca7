// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/crop_choice.h"

#include <iterator>
#include <string>

#include "dataflow/entry.h"

namespace penstock {

Crop parse_crop(std::string_view component, std::string_view text) {
  const std::string wanted = text == "centre" ? "center" : canonical_name(text);
  std::string known;
  for (std::size_t i = 0; i < std::size(kCropValues); ++i) {
    if (wanted == canonical_name(kCropValues[i].name)) return static_cast<Crop>(i);
    known += (i == 0 ? "" : i + 1 == std::size(kCropValues) ? " or " : ", ");
    known += kCropValues[i].name;
  }
  throw ConfigError(std::string(component) + ": option 'crop' is '" + std::string(text) +
                    "'; expected " + known);
}

std::string_view name_of(Crop crop) { return kCropValues[static_cast<std::size_t>(crop)].name; }

Crop evaluation_crop(Crop crop) {
  switch (crop) {
    case Crop::random:
      return Crop::centre;
    case Crop::tf_random:
      return Crop::tf_centre;
    case Crop::tensorpack_random:
      return Crop::tensorpack_centre;
    case Crop::centre:
    case Crop::full:
    case Crop::tf_centre:
    case Crop::tensorpack_centre:
      break;
  }
  return crop;
}

Region choose_region(Crop crop, ImageSize image, const ImageShape& output, Random& random) {
  switch (crop) {
    case Crop::random:
      return random_resized_crop(image, random);
    case Crop::centre:
      return centre_crop(image, output);
    case Crop::full:
      break;
    case Crop::tf_random:
      return tf_random_crop(image, random);
    case Crop::tf_centre:
      return tf_centre_crop(image, output);
    case Crop::tensorpack_random:
      return tensorpack_random_crop(image, output, random);
    case Crop::tensorpack_centre:
      return tensorpack_centre_crop(image, output);
  }
  return whole_image(image);
}

}  // namespace penstock
