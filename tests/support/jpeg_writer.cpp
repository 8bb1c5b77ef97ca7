// SPDX-License-Identifier: Apache-2.0
#include "tests/support/jpeg_writer.h"

#include <cstdio>
#include <cstdlib>
// jpeglib.h needs size_t and FILE from the header above.
#include <jpeglib.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "dataflow/random.h"

namespace penstock {
namespace {

[[noreturn]] void throw_error(j_common_ptr jpeg) {
  char text[JMSG_LENGTH_MAX];
  jpeg->err->format_message(jpeg, text);
  throw std::runtime_error(text);  // only for mistakes in a test, which may leak memory
}

}  // namespace

TestImage make_test_image(int width, int height, int channels, std::uint64_t seed) {
  TestImage image{width, height, channels, {}};
  image.pixels.resize(static_cast<std::size_t>(width) * height * channels);
  Random random(seed);
  const double phase = random.uniform(0, 6.28);
  std::uint8_t* to = image.pixels.data();
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const double edge = (x / 23 + y / 17) % 2 == 0 ? 40 : -40;
      for (int c = 0; c < channels; ++c) {
        const double wave = 60 * std::sin(phase + c + x * 0.05 * (c + 1)) * std::cos(y * 0.07 + c);
        const double value = 128 + wave + edge * (c == 1 ? -1 : 1) + random.uniform(-12, 12);
        *to++ = static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0));
      }
    }
  }
  return image;
}

TestImage make_flat_image(int width, int height, std::uint8_t red, std::uint8_t green,
                          std::uint8_t blue) {
  TestImage image{width, height, 3, {}};
  for (int i = 0; i < width * height; ++i)
    image.pixels.insert(image.pixels.end(), {red, green, blue});
  return image;
}

std::vector<std::byte> encode_jpeg(const TestImage& image, const JpegForm& form) {
  jpeg_error_mgr errors;
  jpeg_compress_struct jpeg{};
  jpeg.err = jpeg_std_error(&errors);
  errors.error_exit = throw_error;
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &memory, &size);
  jpeg.image_width = static_cast<JDIMENSION>(image.width);
  jpeg.image_height = static_cast<JDIMENSION>(image.height);
  jpeg.input_components = image.channels;
  jpeg.in_color_space = image.channels == 1   ? JCS_GRAYSCALE
                        : image.channels == 3 ? JCS_RGB
                                              : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  if (form.stored_as_rgb) jpeg_set_colorspace(&jpeg, JCS_RGB);
  if (form.ycck) jpeg_set_colorspace(&jpeg, JCS_YCCK);
  jpeg_set_quality(&jpeg, form.quality, TRUE);
  if (image.channels == 3 && !form.stored_as_rgb) {
    jpeg.comp_info[0].h_samp_factor = form.horizontal;
    jpeg.comp_info[0].v_samp_factor = form.vertical;
  }
  if (image.channels == 4 && !form.ycck) jpeg.write_Adobe_marker = form.adobe_marker ? TRUE : FALSE;
  jpeg.arith_code = form.arithmetic ? TRUE : FALSE;
  jpeg.optimize_coding = form.optimised ? TRUE : FALSE;
  jpeg.restart_interval = static_cast<unsigned>(form.restart_interval);
  jpeg_scan_info scans[4]{};
  if (form.separate_scans) {
    for (int c = 0; c < jpeg.num_components; ++c) scans[c] = {1, {c}, 0, 63, 0, 0};
    jpeg.scan_info = scans;
    jpeg.num_scans = jpeg.num_components;
  } else if (form.progressive) {
    jpeg_simple_progression(&jpeg);
  }
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    auto* row = const_cast<JSAMPROW>(image.at(0, static_cast<int>(jpeg.next_scanline)));
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  const auto* bytes = reinterpret_cast<const std::byte*>(memory);
  std::vector<std::byte> result(bytes, bytes + size);
  jpeg_destroy_compress(&jpeg);
  std::free(memory);
  return result;
}

TestImage decode_jpeg(const std::vector<std::byte>& bytes, bool fancy, int divisor) {
  jpeg_error_mgr errors;
  jpeg_decompress_struct jpeg{};
  jpeg.err = jpeg_std_error(&errors);
  errors.error_exit = throw_error;
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&jpeg, TRUE);
  const bool inks = jpeg.num_components == 4;
  jpeg.out_color_space = inks ? JCS_CMYK : JCS_RGB;
  jpeg.do_fancy_upsampling = fancy ? TRUE : FALSE;
  jpeg.scale_denom = static_cast<unsigned>(divisor);
  jpeg_start_decompress(&jpeg);
  TestImage image{
      static_cast<int>(jpeg.output_width), static_cast<int>(jpeg.output_height), inks ? 4 : 3, {}};
  image.pixels.resize(static_cast<std::size_t>(image.width) * image.height * image.channels);
  while (jpeg.output_scanline < jpeg.output_height) {
    auto* row = const_cast<JSAMPROW>(image.at(0, static_cast<int>(jpeg.output_scanline)));
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_destroy_decompress(&jpeg);
  return image;
}

}  // namespace penstock
