// SPDX-License-Identifier: Apache-2.0
#include "bench/dataset/jpeg_file.h"

// libjpeg's header needs <cstdio> before it. Its errors use longjmp, so no object with a destructor
// may be created between a setjmp and the calls that may jump.
#include <csetjmp>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <jpeglib.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/images/png.h"
#include "dataflow/machine/input_file.h"

namespace penstock::dataset {
namespace {

// Larger images are refused before they cost memory or time; no training uses them.
constexpr std::size_t kMostPixels = 100'000'000;
constexpr int kMostScans = 500;  // of a progressive file; encoders write about ten

/// libjpeg's error manager, the jump target, and the error message.
struct ErrorExit {
  jpeg_error_mgr manager{};  // first: libjpeg hands out pointers to it
  std::jmp_buf back{};
  char text[JMSG_LENGTH_MAX] = {};

  jpeg_error_mgr* install() {
    jpeg_std_error(&manager);
    manager.error_exit = [](j_common_ptr codec) {
      auto* const self = reinterpret_cast<ErrorExit*>(codec->err);
      codec->err->format_message(codec, self->text);
      std::longjmp(self->back, 1);
    };
    manager.output_message = [](j_common_ptr) {};  // warnings are not printed
    return &manager;
  }
};

/// All resources of an encoder, so that they are released on every exit.
struct Encoder {
  Encoder() { codec.err = error.install(); }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;
  ~Encoder() {
    jpeg_destroy_compress(&codec);
    std::free(buffer);
  }

  /// Returns false on failure, with the reason in error.text.
  bool encode(const Photo& photo, int quality) {
    if (setjmp(error.back) != 0) return false;
    jpeg_create_compress(&codec);
    jpeg_mem_dest(&codec, &buffer, &size);
    codec.image_width = static_cast<JDIMENSION>(photo.width);
    codec.image_height = static_cast<JDIMENSION>(photo.height);
    codec.input_components = 3;
    codec.in_color_space = JCS_RGB;
    jpeg_set_defaults(&codec);  // YCbCr, 4:2:0
    jpeg_set_quality(&codec, quality, TRUE);
    jpeg_start_compress(&codec, TRUE);
    while (codec.next_scanline < codec.image_height) {
      auto* line = const_cast<JSAMPROW>(photo.line(static_cast<std::int32_t>(codec.next_scanline)));
      jpeg_write_scanlines(&codec, &line, 1);
    }
    jpeg_finish_compress(&codec);
    return true;
  }

  ErrorExit error;
  jpeg_compress_struct codec{};
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
};

struct Reader {
  explicit Reader(const std::string& path) {
    codec.err = error.install();
    InputFile opened(path.c_str());
    if (!opened) throw DataError("cannot open {}: {}", path, opened.problem());
    file = ::fdopen(opened.release(), "rb");
  }
  explicit Reader(std::span<const std::byte> encoded) : bytes(encoded) {
    codec.err = error.install();
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() {
    jpeg_destroy_decompress(&codec);
    if (file != nullptr) std::fclose(file);
  }

  /// The first bytes.
  std::span<const std::byte> front() {
    if (file == nullptr) return bytes;
    const std::size_t count = std::fread(first, 1, sizeof first, file);
    std::rewind(file);
    return std::as_bytes(std::span(first)).first(count);
  }

  bool read_header() {
    if (setjmp(error.back) != 0) return false;
    jpeg_create_decompress(&codec);
    if (file != nullptr) {
      jpeg_stdio_src(&codec, file);
    } else {
      jpeg_mem_src(&codec, reinterpret_cast<const unsigned char*>(bytes.data()),
                   static_cast<unsigned long>(bytes.size()));
    }
    jpeg_read_header(&codec, TRUE);
    progress.progress_monitor = [](j_common_ptr common) {
      const auto* const decoder = reinterpret_cast<jpeg_decompress_struct*>(common);
      if (decoder->input_scan_number > kMostScans) {
        auto* const self = reinterpret_cast<ErrorExit*>(common->err);
        std::snprintf(self->text, sizeof self->text, "more than %d scans", kMostScans);
        std::longjmp(self->back, 1);
      }
    };
    codec.progress = &progress;
    return true;
  }

  /// Call it after read_header. Chooses the scale and computes the size of the image.
  bool choose_scale(std::int32_t width, std::int32_t height) {
    if (setjmp(error.back) != 0) return false;
    codec.scale_num = 1;
    codec.scale_denom = 8;
    while (codec.scale_denom > 1 &&
           (codec.image_width / codec.scale_denom < static_cast<JDIMENSION>(width) ||
            codec.image_height / codec.scale_denom < static_cast<JDIMENSION>(height))) {
      codec.scale_denom /= 2;
    }
    const bool inks = codec.jpeg_color_space == JCS_CMYK || codec.jpeg_color_space == JCS_YCCK;
    codec.out_color_space = inks ? JCS_CMYK : JCS_RGB;
    jpeg_calc_output_dimensions(&codec);
    return true;
  }

  /// Call it after choose_scale. `lines` holds output_height lines of output_components channels.
  bool read_lines(unsigned char* lines) {
    if (setjmp(error.back) != 0) return false;
    jpeg_start_decompress(&codec);
    while (codec.output_scanline < codec.output_height) {
      JSAMPROW line = lines + std::size_t{codec.output_scanline} * codec.output_width *
                                  static_cast<std::size_t>(codec.output_components);
      jpeg_read_scanlines(&codec, &line, 1);
    }
    return true;
  }

  ErrorExit error;
  jpeg_progress_mgr progress{};
  jpeg_decompress_struct codec{};
  std::FILE* file = nullptr;  // null: reads from memory
  std::span<const std::byte> bytes;
  char first[32] = {};
};

std::string subsampling_of(const jpeg_decompress_struct& codec) {
  if (codec.num_components == 1) return "none";
  const jpeg_component_info* const part = codec.comp_info;
  if (codec.num_components == 3 && part[1].h_samp_factor == 1 && part[1].v_samp_factor == 1 &&
      part[2].h_samp_factor == 1 && part[2].v_samp_factor == 1) {
    const int h = part[0].h_samp_factor, v = part[0].v_samp_factor;
    if (h == 1 && v == 1) return "4:4:4";
    if (h == 2 && v == 1) return "4:2:2";
    if (h == 2 && v == 2) return "4:2:0";
    if (h == 1 && v == 2) return "4:4:0";
    if (h == 4 && v == 1) return "4:1:1";
  }
  std::string factors;
  for (int i = 0; i < codec.num_components; ++i) {
    factors +=
        fmt::format("{}{}x{}", i == 0 ? "" : ",", part[i].h_samp_factor, part[i].v_samp_factor);
  }
  return factors;
}

std::string name_of(J_COLOR_SPACE space) {
  switch (space) {
    case JCS_GRAYSCALE:
      return "grayscale";
    case JCS_RGB:
      return "RGB";
    case JCS_YCbCr:
      return "YCbCr";
    case JCS_CMYK:
      return "CMYK";
    case JCS_YCCK:
      return "YCCK";
    default:
      return "unknown";
  }
}

[[noreturn]] void unreadable(const std::string& path, const ErrorExit& error) {
  throw DataError("cannot read {} as a JPEG: {}", path, error.text);
}

JpegHeader header_of(Reader& reader, const std::string& name) {
  const std::span<const std::byte> front = reader.front();
  if (const std::optional<ImageSize> size = png::size_of(front)) {
    return {
        .width = size->width, .height = size->height, .colour_space = "PNG", .subsampling = "none"};
  }
  if (!reader.read_header()) unreadable(name, reader.error);
  return {.width = static_cast<std::int32_t>(reader.codec.image_width),
          .height = static_cast<std::int32_t>(reader.codec.image_height),
          .colour_space = name_of(reader.codec.jpeg_color_space),
          .subsampling = subsampling_of(reader.codec),
          .progressive = reader.codec.progressive_mode != FALSE};
}

Photo read_png(const std::string& path, ImageSize size) {
  const auto pixels = static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height);
  if (pixels > kMostPixels) throw DataError(path + " has too many pixels to show");
  const std::string content = InputFile(path.c_str()).text();
  std::vector<std::uint8_t> rgbx(4 * pixels);
  try {
    png::decode(std::as_bytes(std::span(content)), rgbx.data());
  } catch (const DataError& error) {
    throw DataError("cannot read {} as a PNG image: {}", path, error.what());
  }
  for (std::size_t i = 0; i < pixels; ++i) std::copy_n(&rgbx[4 * i], 3, &rgbx[3 * i]);
  rgbx.resize(3 * pixels);
  return {size.width, size.height, std::move(rgbx)};
}

}  // namespace

std::vector<std::byte> encode_jpeg(const Photo& photo, std::int32_t quality) {
  Encoder encoder;
  if (!encoder.encode(photo, quality)) {
    throw DataError("cannot encode an image of {}x{} as a JPEG: {}", photo.width, photo.height,
                    encoder.error.text);
  }
  const auto bytes = std::as_bytes(std::span(encoder.buffer, encoder.size));
  return {bytes.begin(), bytes.end()};
}

JpegHeader read_jpeg_header(const std::string& path) {
  Reader reader(path);
  return header_of(reader, path);
}

JpegHeader read_jpeg_header(std::span<const std::byte> bytes, const std::string& name) {
  Reader reader(bytes);
  return header_of(reader, name);
}

Photo read_jpeg_reduced(const std::string& path, std::int32_t width, std::int32_t height) {
  Reader reader(path);
  if (const std::optional<ImageSize> size = png::size_of(reader.front())) {
    return read_png(path, *size);
  }
  if (!reader.read_header() || !reader.choose_scale(width, height)) unreadable(path, reader.error);
  if (std::size_t{reader.codec.image_width} * reader.codec.image_height > kMostPixels) {
    throw DataError("{} has {}x{} pixels, too many to show", path, reader.codec.image_width,
                    reader.codec.image_height);
  }
  const std::size_t pixels = std::size_t{reader.codec.output_width} * reader.codec.output_height;
  const auto channels = static_cast<std::size_t>(reader.codec.out_color_space == JCS_CMYK ? 4 : 3);
  std::vector<std::uint8_t> lines(pixels * channels);
  if (!reader.read_lines(lines.data())) unreadable(path, reader.error);
  if (channels == 4) {  // Adobe stores inks inverted: the value is the remaining light
    for (std::size_t i = 0; i < pixels; ++i) {
      for (std::size_t c = 0; c < 3; ++c) {
        lines[3 * i + c] = static_cast<std::uint8_t>(lines[4 * i + c] * lines[4 * i + 3] / 255);
      }
    }
    lines.resize(3 * pixels);
  }
  return {static_cast<std::int32_t>(reader.codec.output_width),
          static_cast<std::int32_t>(reader.codec.output_height), std::move(lines)};
}

}  // namespace penstock::dataset
