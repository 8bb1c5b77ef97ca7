// SPDX-License-Identifier: Apache-2.0
// Pixels that were decoded before the run: a row costs one copy.
#include <cstring>
#include <string>

#include "dataflow/decoder.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

constexpr OptionSpec kOptions[] = {{"flip", "false", "mirror every other image, by chance"}};

class RawDecoder final : public Decoder {
 public:
  explicit RawDecoder(const Options& options) : flip_(options.flag("flip")) {}

  void decode(const Sample& sample, const ImageView& row, Random& random) override {
    const std::span<const std::byte> pixels = sample.content();
    const std::size_t pixel_bytes =
        size_of(row.dtype) * static_cast<std::size_t>(row.shape.channels);
    const std::size_t line_bytes = pixel_bytes * static_cast<std::size_t>(row.shape.width);
    const auto lines = static_cast<std::size_t>(row.shape.height);
    if (pixels.size() != line_bytes * lines) refuse(sample, row, line_bytes * lines);
    const bool mirrored = flip_ && random.uniform() < 0.5;
    if (!mirrored && static_cast<std::size_t>(row.row_bytes) == line_bytes) {
      std::memcpy(row.data, pixels.data(), pixels.size());
      return;
    }
    for (std::size_t line = 0; line < lines; ++line) {
      const std::byte* const from = pixels.data() + line * line_bytes;
      std::byte* const to = row.data + static_cast<std::ptrdiff_t>(line) * row.row_bytes;
      if (!mirrored) {
        std::memcpy(to, from, line_bytes);
        continue;
      }
      for (std::size_t x = 0; x < line_bytes; x += pixel_bytes) {
        std::memcpy(to + x, from + line_bytes - pixel_bytes - x, pixel_bytes);
      }
    }
  }

 private:
  [[noreturn]] static void refuse(const Sample& sample, const ImageView& row, std::size_t wanted) {
    throw DataError("copying the pixels of '" + std::string(sample.file) + "' (sample " +
                    std::to_string(sample.index) + "): there are " +
                    std::to_string(sample.content().size()) + " bytes; expected " +
                    std::to_string(wanted) + ", " + std::to_string(row.shape.height) + "x" +
                    std::to_string(row.shape.width) + "x" + std::to_string(row.shape.channels) +
                    " of them as the batch has it; use a source that holds such pixels, as "
                    "queue:decode=raw makes one");
  }

  const bool flip_;
};

std::unique_ptr<Decoder> make(const Options& options) {
  return std::make_unique<RawDecoder>(options);
}

}  // namespace

extern constinit const DecoderEntry raw_decoder{
    .name = "raw",
    .summary = "pixels that the source has decoded already: one copy for each row",
    .options = kOptions,
    .make = make,
};

}  // namespace penstock
