// SPDX-License-Identifier: Apache-2.0
#include "tests/support/feeder_surroundings.h"

#include "tests/support/jpeg_writer.h"

namespace penstock {
namespace {

void write_images(const TempFolder& folder) {
  for (int index = 0; index < 12; ++index) {
    const TestImage image =
        make_test_image(260 + 3 * index, 240, 3, static_cast<std::uint64_t>(index));
    const std::string name = index % 2 == 0 ? "cats/" : "dogs/";
    folder.write(name + std::to_string(index) + ".JPEG", encode_jpeg(image));
  }
}

}  // namespace

FeederSurroundings::FeederSurroundings(const FeederEntry& entry, std::int32_t images,
                                       const std::string& program)
    : text_(entry.name) {
  if (entry.reads_files) write_images(folder_);
  if (entry.needs_producer) {
    const std::string endpoint = "ipc://" + (folder_.path() / "feed").string();
    text_ += ":endpoint=" + endpoint + ",producer='" + program +
             " serve --fake-location cpu --model null --batch-size " + std::to_string(images) +
             " --endpoint " + endpoint + "'";
  }
}

}  // namespace penstock
