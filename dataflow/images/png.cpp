// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/png.h"

#include <png.h>

#include <csetjmp>
#include <cstring>
#include <limits>
#include <string_view>

#include "dataflow/error.h"

namespace penstock::png {
namespace {

/// libpng reports errors by longjmp, so this object holds all that the jump leaves behind.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() { png_destroy_read_struct(&png_, &info_, nullptr); }

  /// False on failure, with the reason in `problem`.
  bool decode(std::uint8_t* rgbx) {
    png_ = png_create_read_struct(
        PNG_LIBPNG_VER_STRING, this,
        [](png_structp png, png_const_charp text) {
          auto* const self = static_cast<Reader*>(png_get_error_ptr(png));
          std::strncpy(self->problem, text, sizeof self->problem - 1);
          png_longjmp(png, 1);
        },
        [](png_structp, png_const_charp) {});
    if (png_ == nullptr) return false;
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    info_ = png_create_info_struct(png_);
    png_set_read_fn(png_, this, [](png_structp png, png_bytep to, std::size_t count) {
      auto* const self = static_cast<Reader*>(png_get_io_ptr(png));
      if (self->rest_.size() < count) png_error(png, "it ends too early");
      std::memcpy(to, self->rest_.data(), count);
      self->rest_ = self->rest_.subspan(count);
    });
    png_read_info(png_, info_);
    png_set_expand(png_);
    png_set_strip_16(png_);
    png_set_gray_to_rgb(png_);
    png_set_filler(png_, 0xff, PNG_FILLER_AFTER);
    const int passes = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    const std::size_t row_bytes = png_get_rowbytes(png_, info_);
    const png_uint_32 rows = png_get_image_height(png_, info_);
    for (int pass = 0; pass < passes; ++pass) {
      for (png_uint_32 row = 0; row < rows; ++row) {
        png_read_row(png_, rgbx + row * row_bytes, nullptr);
      }
    }
    return true;
  }

  char problem[128] = "no memory";

 private:
  std::span<const std::byte> rest_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

std::optional<ImageSize> size_of(std::span<const std::byte> bytes) noexcept {
  constexpr std::string_view kBegin("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.size() < kBegin.size() + 8 || !text.starts_with(kBegin)) return std::nullopt;
  const auto number = [&](std::size_t at) {
    return png_get_uint_32(reinterpret_cast<png_const_bytep>(text.data() + at));
  };
  const png_uint_32 width = number(16), height = number(20);
  constexpr png_uint_32 kMost = std::numeric_limits<std::int32_t>::max();
  if (width < 1 || height < 1 || width > kMost || height > kMost) return std::nullopt;
  return ImageSize{static_cast<std::int32_t>(width), static_cast<std::int32_t>(height)};
}

void decode(std::span<const std::byte> bytes, std::uint8_t* rgbx) {
  Reader reader(bytes);
  if (!reader.decode(rgbx)) throw DataError(reader.problem);
}

}  // namespace penstock::png
