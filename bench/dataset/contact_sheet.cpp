// SPDX-License-Identifier: Apache-2.0
#include "bench/dataset/contact_sheet.h"

#include <csetjmp>
#include <cstdio>

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/machine/output_file.h"

namespace penstock::dataset {
namespace {

// All in pixels.
constexpr std::int32_t kColumns = kSheetColumns, kCellWidth = 160, kCellHeight = 120, kGap = 4;
constexpr std::int32_t kZoom = 2, kLabelHeight = 7 * kZoom + 2 * kGap;
constexpr std::int32_t kSheetWidth = kColumns * (kCellWidth + kGap) + kGap;
constexpr std::int32_t kRowHeight = kLabelHeight + kCellHeight + kGap;
constexpr std::size_t kMostRows = 100;
constexpr std::uint8_t kPaper = 245, kEmpty = 215, kInk = 20;

/// Characters of 5 x 7 dots: seven lines from the top, the leftmost dot in bit 4.
struct Glyph {
  char character;
  std::uint8_t lines[7];
};
constexpr Glyph kGlyphs[] = {
    {'0', {14, 17, 19, 21, 25, 17, 14}}, {'1', {4, 12, 4, 4, 4, 4, 14}},
    {'2', {14, 17, 1, 2, 4, 8, 31}},     {'3', {31, 2, 4, 2, 1, 17, 14}},
    {'4', {2, 6, 10, 18, 31, 2, 2}},     {'5', {31, 16, 30, 1, 1, 17, 14}},
    {'6', {6, 8, 16, 30, 17, 17, 14}},   {'7', {31, 1, 2, 4, 8, 8, 8}},
    {'8', {14, 17, 17, 14, 17, 17, 14}}, {'9', {14, 17, 17, 15, 1, 2, 12}},
    {'A', {14, 17, 17, 31, 17, 17, 17}}, {'B', {30, 17, 17, 30, 17, 17, 30}},
    {'C', {14, 17, 16, 16, 16, 17, 14}}, {'D', {30, 17, 17, 17, 17, 17, 30}},
    {'E', {31, 16, 16, 30, 16, 16, 31}}, {'F', {31, 16, 16, 30, 16, 16, 16}},
    {'G', {14, 17, 16, 23, 17, 17, 15}}, {'H', {17, 17, 17, 31, 17, 17, 17}},
    {'I', {14, 4, 4, 4, 4, 4, 14}},      {'J', {7, 2, 2, 2, 2, 18, 12}},
    {'K', {17, 18, 20, 24, 20, 18, 17}}, {'L', {16, 16, 16, 16, 16, 16, 31}},
    {'M', {17, 27, 21, 21, 17, 17, 17}}, {'N', {17, 25, 21, 19, 17, 17, 17}},
    {'O', {14, 17, 17, 17, 17, 17, 14}}, {'P', {30, 17, 17, 30, 16, 16, 16}},
    {'Q', {14, 17, 17, 17, 21, 18, 13}}, {'R', {30, 17, 17, 30, 20, 18, 17}},
    {'S', {15, 16, 16, 14, 1, 1, 30}},   {'T', {31, 4, 4, 4, 4, 4, 4}},
    {'U', {17, 17, 17, 17, 17, 17, 14}}, {'V', {17, 17, 17, 17, 17, 10, 4}},
    {'W', {17, 17, 17, 21, 21, 27, 17}}, {'X', {17, 17, 10, 4, 10, 17, 17}},
    {'Y', {17, 17, 10, 4, 4, 4, 4}},     {'Z', {31, 1, 2, 4, 8, 16, 31}},
    {'_', {0, 0, 0, 0, 0, 0, 31}},       {'-', {0, 0, 0, 31, 0, 0, 0}},
    {'.', {0, 0, 0, 0, 0, 12, 12}},      {' ', {0, 0, 0, 0, 0, 0, 0}}};
constexpr std::uint8_t kUnknownGlyph[7] = {31, 17, 17, 17, 17, 17, 31};

void fill(Photo& sheet, std::int32_t left, std::int32_t top, std::int32_t width,
          std::int32_t height, std::uint8_t grey) {
  for (std::int32_t y = top; y < top + height; ++y) {
    std::fill_n(sheet.line(y) + std::ptrdiff_t{3} * left, std::ptrdiff_t{3} * width, grey);
  }
}

void write_text(Photo& sheet, std::int32_t left, std::int32_t top, std::string_view text) {
  for (const char c : text) {
    if (left + 6 * kZoom > sheet.width) return;
    const char upper = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    const std::uint8_t* lines = kUnknownGlyph;
    for (const Glyph& glyph : kGlyphs) {
      if (glyph.character == upper) lines = glyph.lines;
    }
    for (std::int32_t y = 0; y < 7; ++y) {
      for (std::int32_t x = 0; x < 5; ++x) {
        if (((lines[y] >> (4 - x)) & 1) == 0) continue;
        fill(sheet, left + x * kZoom, top + y * kZoom, kZoom, kZoom, kInk);
      }
    }
    left += 6 * kZoom;
  }
}

/// Draws `photo` into the middle of the cell, as large as possible. Each dot is the mean of the
/// pixels that it covers. Small photos are enlarged by a whole number.
void draw_small(Photo& sheet, std::int32_t left, std::int32_t top, const Photo& photo) {
  const double fits = std::min(static_cast<double>(kCellWidth) / photo.width,
                               static_cast<double>(kCellHeight) / photo.height);
  const double scale = fits < 1 ? fits : std::floor(fits);
  const auto scaled = [&](std::int32_t length) {
    return std::max(1, static_cast<std::int32_t>(scale * length));
  };
  const std::int32_t width = scaled(photo.width), height = scaled(photo.height);
  left += (kCellWidth - width) / 2;
  top += (kCellHeight - height) / 2;
  const auto begin = [](std::int32_t i, std::int32_t from, std::int32_t to) {
    return static_cast<std::int32_t>(std::int64_t{i} * from / to);
  };
  for (std::int32_t y = 0; y < height; ++y) {
    const std::int32_t y0 = begin(y, photo.height, height);
    const std::int32_t y1 = std::max(y0 + 1, begin(y + 1, photo.height, height));
    for (std::int32_t x = 0; x < width; ++x) {
      const std::int32_t x0 = begin(x, photo.width, width);
      const std::int32_t x1 = std::max(x0 + 1, begin(x + 1, photo.width, width));
      std::int64_t sum[3] = {};
      for (std::int32_t v = y0; v < y1; ++v) {
        for (std::int32_t u = x0; u < x1; ++u) {
          for (std::int32_t c = 0; c < 3; ++c) sum[c] += photo.line(v)[3 * u + c];
        }
      }
      const std::int64_t count = std::int64_t{x1 - x0} * (y1 - y0);
      for (std::int32_t c = 0; c < 3; ++c) {
        sheet.line(top + y)[3 * (left + x) + c] = static_cast<std::uint8_t>(sum[c] / count);
      }
    }
  }
}

void cross_out(Photo& sheet, std::int32_t left, std::int32_t top) {
  for (std::int32_t y = 0; y < kCellHeight; ++y) {
    const std::int32_t x = y * (kCellWidth - 2) / kCellHeight;
    fill(sheet, left + x, top + y, 2, 1, kInk);
    fill(sheet, left + kCellWidth - 2 - x, top + y, 2, 1, kInk);
  }
}

std::size_t shown_of(const ClassInventory& one) {
  return std::min<std::size_t>(kColumns, one.images());
}

/// The image of the class in a column; images are spread evenly.
std::size_t place_of(const ClassInventory& one, std::size_t column) {
  return column * one.images() / shown_of(one);
}

/// Returns the picture of an image by class and place; none if it cannot be shown.
class Pictures {
 public:
  Pictures(DatasetInventory& inventory, std::size_t rows, const std::stop_token& stop)
      : odd_(inventory.odd) {
    std::set<std::uint64_t> indices;
    for (std::size_t i = 0; i < rows; ++i) {
      const ClassInventory& one = inventory.classes[i];
      if (one.samples.empty()) continue;
      for (std::size_t column = 0; column < shown_of(one); ++column) {
        indices.insert(one.samples[place_of(one, column)]);
      }
    }
    if (indices.empty()) return;
    samples_ = draw_samples(inventory, std::move(indices), kCellWidth, kCellHeight, stop);
  }

  std::optional<Photo> operator()(const ClassInventory& one, std::size_t place) const {
    if (!one.samples.empty()) {
      const auto found = samples_.find(one.samples[place]);
      return found == samples_.end() ? std::nullopt : std::optional(found->second);
    }
    try {
      return read_jpeg_reduced(one.files[place], kCellWidth, kCellHeight);
    } catch (const DataError& error) {
      odd_.push_back({one.files[place], error.what()});
      return std::nullopt;
    }
  }

 private:
  std::vector<OddFile>& odd_;
  std::map<std::uint64_t, Photo> samples_;  // if images are not files
};

Photo draw_row(const SheetRow& of) {
  Photo row{kSheetWidth, kRowHeight,
            std::vector<std::uint8_t>(std::size_t{3} * kSheetWidth * kRowHeight, kPaper)};
  write_text(row, kGap, kGap, of.title);
  for (std::size_t column = 0; column < of.pictures.size(); ++column) {
    const std::int32_t left = kGap + static_cast<std::int32_t>(column) * (kCellWidth + kGap);
    fill(row, left, kLabelHeight, kCellWidth, kCellHeight, kEmpty);
    if (const std::optional<Photo>& picture = of.pictures[column]) {
      draw_small(row, left, kLabelHeight, *picture);
    } else {
      cross_out(row, left, kLabelHeight);
    }
  }
  return row;
}

/// Writes a PNG row by row. libpng reports errors by longjmp, like libjpeg.
class PngFile {
 public:
  explicit PngFile(const std::string& path)
      : path_(path), out_(path, "choose another path with --contact-sheet") {}
  PngFile(const PngFile&) = delete;
  PngFile& operator=(const PngFile&) = delete;
  ~PngFile() { png_destroy_write_struct(&png_, &info_); }

  void begin(std::int32_t width, std::int32_t height) {
    png_ = png_create_write_struct(
        PNG_LIBPNG_VER_STRING, this,
        [](png_structp png, png_const_charp text) {
          auto* const self = static_cast<PngFile*>(png_get_error_ptr(png));
          std::snprintf(self->reason_, sizeof self->reason_, "%s", text);
          std::longjmp(self->back_, 1);
        },
        [](png_structp, png_const_charp) {});
    if (png_ == nullptr) fail("no memory");
    const auto wide = static_cast<png_uint_32>(width), high = static_cast<png_uint_32>(height);
    write([&] {
      info_ = png_create_info_struct(png_);
      png_set_write_fn(
          png_, this,
          [](png_structp png, png_bytep data, std::size_t size) {
            std::string& content = static_cast<PngFile*>(png_get_io_ptr(png))->content_;
            content.append(reinterpret_cast<const char*>(data), size);
          },
          nullptr);
      png_set_user_limits(png_, wide, high);
      png_set_IHDR(png_, info_, wide, high, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                   PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
      png_write_info(png_, info_);
    });
  }
  void add(const Photo& lines) {
    write([&] {
      for (std::int32_t y = 0; y < lines.height; ++y) png_write_row(png_, lines.line(y));
    });
  }
  void end() {
    write([&] { png_write_end(png_, nullptr); });
    out_.write(content_);
    out_.commit();
  }

 private:
  /// Errors jump out of `call`, which must create no object with a destructor.
  template <typename Call>
  void write(const Call& call) {
    if (setjmp(back_) != 0) fail(reason_);
    call();
  }
  [[noreturn]] void fail(const char* reason) const {
    throw ConfigError("cannot write {}: {}; choose another path with --contact-sheet", path_,
                      reason);
  }

  const std::string path_;
  OutputFile out_;
  std::string content_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf back_{};
  char reason_[200] = {};
};

}  // namespace

void write_sheet(const std::string& path, std::size_t rows,
                 const std::function<SheetRow(std::size_t)>& row) {
  PngFile sheet(path);
  sheet.begin(kSheetWidth, static_cast<std::int32_t>(rows) * kRowHeight);
  for (std::size_t i = 0; i < rows; ++i) sheet.add(draw_row(row(i)));
  sheet.end();
}

void write_contact_sheet(DatasetInventory& inventory, const std::string& path,
                         const std::stop_token& stop) {
  const std::size_t rows = std::min(inventory.classes.size(), kMostRows);
  const Pictures pictures(inventory, rows, stop);
  write_sheet(path, rows, [&](std::size_t i) {
    const ClassInventory& one = inventory.classes[i];
    SheetRow row{fmt::format("{}  {}", one.name, one.images()), {}};
    for (std::size_t column = 0; column < shown_of(one); ++column) {
      row.pictures.push_back(pictures(one, place_of(one, column)));
    }
    return row;
  });
}

}  // namespace penstock::dataset
