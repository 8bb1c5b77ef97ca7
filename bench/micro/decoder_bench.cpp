// SPDX-License-Identifier: Apache-2.0
// Measures one thread that decodes real files from memory: libjpeg-turbo's full decode (the peer),
// Penstock's decoder from bytes to a 224x224 row, and the cost of its parts.
#include <benchmark/benchmark.h>

#include <cstdio>
// jpeglib.h needs size_t and FILE from the header above.
#include <jpeglib.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/micro/micro_data.h"
#include "dataflow/decoder.h"
#include "dataflow/images/resample.h"

namespace penstock {
namespace {

/// Calls `decode(sample, count)` repeatedly over all files; reports img/s and bytes/s.
template <typename Decode>
void decode_all(benchmark::State& state, Decode decode) {
  std::string problem;
  const std::vector<Sample>& samples = micro_samples(problem);
  if (samples.empty()) {
    state.SkipWithError(problem.c_str());
    return;
  }
  std::uint64_t count = 0;
  std::int64_t bytes = 0;
  for (auto _ : state) {
    const Sample& sample = samples[count % samples.size()];
    decode(sample, count++);
    bytes += static_cast<std::int64_t>(sample.bytes.size());
  }
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(bytes);
}

void LibjpegFullDecode(benchmark::State& state, J_COLOR_SPACE space, bool fancy) {
  jpeg_error_mgr errors;
  jpeg_decompress_struct jpeg{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&jpeg);
  std::vector<unsigned char> pixels;
  decode_all(state, [&](const Sample& sample, std::uint64_t) {
    jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(sample.bytes.data()),
                 sample.bytes.size());
    jpeg_read_header(&jpeg, TRUE);
    jpeg.out_color_space = space;
    jpeg.do_fancy_upsampling = fancy ? TRUE : FALSE;
    jpeg_start_decompress(&jpeg);
    const std::size_t stride = static_cast<std::size_t>(jpeg.output_components) * jpeg.output_width;
    pixels.resize(stride * jpeg.output_height);
    while (jpeg.output_scanline < jpeg.output_height) {
      JSAMPROW rows[2] = {pixels.data() + stride * jpeg.output_scanline, nullptr};
      const bool two = jpeg.output_scanline + 1 < jpeg.output_height;
      if (two) rows[1] = rows[0] + stride;
      jpeg_read_scanlines(&jpeg, rows, two ? 2 : 1);
    }
    jpeg_finish_decompress(&jpeg);
    benchmark::DoNotOptimize(pixels.data());
  });
  jpeg_destroy_decompress(&jpeg);
}
BENCHMARK_CAPTURE(LibjpegFullDecode, rgb, JCS_RGB, true)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(LibjpegFullDecode, rgb_plain_upsampling, JCS_RGB, false)
    ->Unit(benchmark::kMicrosecond);

void JpegDecoder(benchmark::State& state, const char* text) {
  const DecoderEntry& entry = find_entry(decoder_table(), "jpeg");
  const std::unique_ptr<Decoder> decoder =
      entry.make(Options(entry.name, entry.options, parse_component(text)));
  const ImageShape shape;
  std::vector<std::byte> row(shape.elements());
  const ImageView view{row.data(), shape, DType::u8, std::ptrdiff_t{3} * shape.width};
  decode_all(state, [&](const Sample& sample, std::uint64_t count) {
    Random random(1, 0, count);
    decoder->decode(sample, view, random);
    benchmark::DoNotOptimize(row.data());
  });
}
BENCHMARK_CAPTURE(JpegDecoder, random, "jpeg:crop=random")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(JpegDecoder, random_plain_upsampling, "jpeg:crop=random,upsampling=plain")
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(JpegDecoder, center, "jpeg:crop=center,flip=false")
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(JpegDecoder, full, "jpeg:crop=full,flip=false")->Unit(benchmark::kMicrosecond);

BENCHMARK_CAPTURE(JpegDecoder, bicubic, "jpeg:resize=bicubic")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(JpegDecoder, tf_cnn_benchmarks, "jpeg:chain=tf_cnn_benchmarks,color=tf_yiq")
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(JpegDecoder, tf_in_hsv, "jpeg:chain=tf_cnn_benchmarks,color=tf")
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(JpegDecoder, tensorpack, "jpeg:chain=tensorpack")->Unit(benchmark::kMicrosecond);

/// The resampler alone, for a region of the mean size of a random resized crop of 500x375 pixels.
void Resample(benchmark::State& state, InstructionSet set) {
  constexpr std::int32_t kWidth = 280, kHeight = 270;
  Resampler resampler(set);
  const ImageShape shape;
  std::vector<std::byte> row(shape.elements());
  const ImageView view{row.data(), shape, DType::u8, std::ptrdiff_t{3} * shape.width};
  for (auto _ : state) {
    resampler.begin({0, kWidth, 0, kWidth}, {0, kHeight, 0, kHeight}, false, view);
    resampler.set_row_layout(0, kWidth);
    for (std::int32_t y = 1; y <= kHeight; ++y) {
      benchmark::DoNotOptimize(resampler.row_buffer(y - 1));
      resampler.rows_ready(y);
    }
    benchmark::DoNotOptimize(row.data());
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK_CAPTURE(Resample, best, best_instruction_set())->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Resample, portable, InstructionSet::portable)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace penstock
