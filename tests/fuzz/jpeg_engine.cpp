// SPDX-License-Identifier: Apache-2.0
// The JPEG engine: decode a window, which the file's checksum chooses, under every instruction set
// that this processor has. All have to give the same pixels and the same verdict.
#include "dataflow/images/jpeg/baseline.h"

#include <csetjmp>
#include <cstdio>
// jpeglib.h needs size_t and FILE from the header above.
#include <jpeglib.h>

#include <optional>

#include "dataflow/random.h"
#include "dataflow/values/crc32c.h"
#include "tests/fuzz/target.h"

namespace penstock::fuzz {
namespace {

/// The headers of a file, as libjpeg reads them.
class Headers {
 public:
  explicit Headers(std::span<const std::byte> file) {
    jpeg_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr jpeg) {
      std::longjmp(static_cast<Headers*>(jpeg->client_data)->escape_, 1);
    };
    errors_.output_message = [](j_common_ptr) {};
    jpeg_.client_data = this;
    jpeg_create_decompress(&jpeg_);
    known_ = read(file);
  }
  Headers(const Headers&) = delete;
  Headers& operator=(const Headers&) = delete;
  ~Headers() { jpeg_destroy_decompress(&jpeg_); }

  /// Whether the engine decodes such an image, and one of this size is quick to decode.
  bool fit() const { return known_ && std::int64_t{frame_.width} * frame_.height <= 200'000; }
  const jpeg::Frame& frame() const { return frame_; }

 private:
  bool read(std::span<const std::byte> file) {
    if (setjmp(escape_) != 0) return false;
    jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(file.data()), file.size());
    jpeg_read_header(&jpeg_, TRUE);
    return read_frame(jpeg_, frame_);
  }

  jpeg_error_mgr errors_{};
  jpeg_decompress_struct jpeg_{};
  std::jmp_buf escape_{};
  jpeg::Frame frame_;
  bool known_ = false;
};

/// The colours of the window, without what pads each pixel. Nothing if the data are damaged.
std::optional<std::vector<std::uint8_t>> decode(InstructionSet set, const jpeg::Frame& frame,
                                                const PixelRange& columns, const PixelRange& rows,
                                                bool smooth) {
  jpeg::BaselineDecoder decoder(set);
  if (!decoder.begin(frame, columns, rows, smooth)) return std::nullopt;
  // Each row is a block of exactly its size, so that a sanitizer reports a byte too many.
  std::vector<std::vector<std::uint8_t>> kept;
  const auto row_bytes = 4 * static_cast<std::size_t>(decoder.width());
  if (!decoder.decode([&](std::int32_t) { return kept.emplace_back(row_bytes).data(); })) {
    return std::nullopt;
  }
  std::vector<std::uint8_t> colours;
  for (const std::vector<std::uint8_t>& row : kept) {
    for (std::int32_t x = columns.first; x < columns.end; ++x) {
      const std::uint8_t* const pixel = row.data() + std::ptrdiff_t{4} * (x - decoder.left());
      colours.insert(colours.end(), pixel, pixel + 3);
    }
  }
  return colours;
}

}  // namespace

std::size_t jpeg_engine(std::span<const std::byte> input) {
  const Headers headers(input);
  if (!headers.fit()) return 0;
  const jpeg::Frame& frame = headers.frame();
  Random random(values::crc32c(input));
  const auto window = [&](std::int32_t size) {
    if (random.below(2) == 0) return PixelRange{0, size};
    const auto first = static_cast<std::int32_t>(random.below(static_cast<unsigned>(size)));
    const auto more = random.below(static_cast<unsigned>(size - first));
    return PixelRange{first, first + 1 + static_cast<std::int32_t>(more)};
  };
  const PixelRange columns = window(frame.width), rows = window(frame.height);
  const bool smooth = random.below(2) == 0;
  const auto portable = decode(InstructionSet::portable, frame, columns, rows, smooth);
  for (const auto set : {InstructionSet::avx2, InstructionSet::avx512}) {
    if (set > best_instruction_set()) break;
    ensure(decode(set, frame, columns, rows, smooth) == portable,
           "other pixels under another instruction set");
  }
  return portable ? 1 : 0;
}

}  // namespace penstock::fuzz
