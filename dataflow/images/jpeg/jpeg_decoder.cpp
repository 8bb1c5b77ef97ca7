// SPDX-License-Identifier: Apache-2.0
// Decodes JPEG into a row of a batch. Only the requested region is decoded. Each of its rows goes
// straight through the resampler into the batch; colours are distorted last. libjpeg-turbo reads
// the headers. BaselineDecoder then decodes the usual images, baseline at full size, to the same
// pixels. libjpeg decodes all others, and starts again on every image on which BaselineDecoder
// fails: libjpeg decides what counts as damage. With engine=nvjpeg a GPU decodes the whole image
// instead; its pixels differ a little. PNG images are decoded whole, by libpng.
//
// Pixels equal those of a full decode, crop, resize and flip, with one exception: if the region is
// at least twice the output's size and the resize is antialiased, libjpeg decodes it at a half, a
// quarter or an eighth. That puts another filter before the resize; shrink=false turns it off. With
// decode=full the whole image is decoded first, at its own size, as most loaders do.
//
// Damage counts only in parts that are read: data below the region are not read. Orientation tags
// are ignored, as PIL and torchvision do when they open a file.
#include <fmt/format.h>

#include <csetjmp>
#include <cstdio>
// jpeglib.h needs size_t and FILE from the headers above; jerror.h needs jpeglib.h.
#include <jpeglib.h>

#include <jerror.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dataflow/decoder.h"
#include "dataflow/error.h"
#include "dataflow/images/augmentation.h"
#include "dataflow/images/image_format.h"
#include "dataflow/images/jpeg/baseline.h"
#include "dataflow/images/jpeg_options.h"
#include "dataflow/images/nvjpeg.h"
#include "dataflow/images/png.h"
#include "dataflow/images/resample.h"

namespace penstock {
namespace {

/// Extra columns and rows that are decoded beside the region. Fancy upsampling reads one neighbour,
/// and treats the first and the last given column as edges.
constexpr std::int32_t kMargin = 2;
/// With fewer columns than about this, libjpeg would not upsample chroma smoothly.
constexpr std::int32_t kNarrowest = 8;
/// Progressive files have about ten scans. A file with thousands can keep a decoder busy for hours.
constexpr int kMaxScans = 100;

[[noreturn]] void refuse(const Sample& sample, const std::string& reason) {
  throw DataError(
      "decoding '{}' (sample {}, {} bytes): {}; expected a whole JPEG or PNG image; replace the "
      "file",
      sample.file, sample.index, sample.content().size(), reason);
}

/// What a file that is no JPEG image looks like: "it looks like a WebP image".
std::string describe_first_bytes(std::span<const std::byte> bytes) {
  if (bytes.empty()) return "it is empty";
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("\x89PNG")) return "it looks like a PNG image";
  if (const std::string_view format = undecoded_format(bytes); !format.empty()) {
    return "it looks like " + std::string(format);
  }
  std::string hex = "it begins with";
  for (const std::byte byte : bytes.first(std::min<std::size_t>(bytes.size(), 8))) {
    hex += fmt::format(" {:02x}", std::to_integer<unsigned>(byte));
  }
  return hex;
}

/// libjpeg's error exit: it jumps back to the decoder, over C frames only, with the reason as text.
struct ErrorTrap {
  jpeg_error_mgr base;  // first, so that a pointer to it is also one to this
  std::jmp_buf escape;
  int code = 0;
  std::array<char, JMSG_LENGTH_MAX> text{};

  [[noreturn]] static void jump(j_common_ptr jpeg) {
    auto* const trap = reinterpret_cast<ErrorTrap*>(jpeg->err);
    trap->code = trap->base.msg_code;
    trap->base.format_message(jpeg, trap->text.data());
    std::longjmp(trap->escape, 1);
  }
  static void on_message(j_common_ptr jpeg, int level) {
    if (level < 0 && is_damage(*jpeg->err)) jump(jpeg);
  }
  static void print_nothing(j_common_ptr) {}

  /// Warnings after which pixels are wrong. The others are about unusual but harmless headers.
  static bool is_damage(const jpeg_error_mgr& error) {
    switch (error.msg_code) {
      case JWRN_ARITH_BAD_CODE:
      case JWRN_HIT_MARKER:
      case JWRN_HUFF_BAD_CODE:
      case JWRN_JPEG_EOF:
      case JWRN_MUST_RESYNC:
        return true;
      case JWRN_EXTRANEOUS_DATA: {  // harmless padding, unless libjpeg had to search for a restart
                                    // marker
        const int marker = error.msg_parm.i[1];
        return marker >= JPEG_RST0 && marker < JPEG_RST0 + 8;
      }
      default:
        return false;
    }
  }
};

/// Limits the number of scans while libjpeg reads them.
struct ScanLimit {
  jpeg_progress_mgr base;  // first, as above
  static void check(j_common_ptr jpeg) {
    if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number <= kMaxScans) return;
    ERREXITS(jpeg, JERR_BAD_PROGRESSION, "");
  }
};

/// Marks the tables in memory as those of the image before, by numbers that no image writes there.
void mark_tables(const jpeg_decompress_struct& jpeg) {
  for (JQUANT_TBL* const table : jpeg.quant_tbl_ptrs) {
    if (table != nullptr) table->quantval[0] = 0;
  }
  for (const auto& tables : {std::span(jpeg.dc_huff_tbl_ptrs), std::span(jpeg.ac_huff_tbl_ptrs)}) {
    for (JHUFF_TBL* const table : tables) {
      if (table != nullptr) table->bits[0] = 1;
    }
  }
}

/// True if the headers hold all tables of the image. False also if later scans may bring some.
bool has_own_tables(const jpeg_decompress_struct& jpeg) {
  if (jpeg.progressive_mode != 0 || jpeg.arith_code != 0) return false;
  if (jpeg.comps_in_scan < jpeg.num_components) return false;
  const auto is_own = [](JHUFF_TBL* const* tables, int number) {
    return number < NUM_HUFF_TBLS && tables[number] != nullptr && tables[number]->bits[0] == 0;
  };
  return std::ranges::all_of(
      std::span(jpeg.cur_comp_info).first(static_cast<std::size_t>(jpeg.comps_in_scan)),
      [&](const jpeg_component_info* component) {
        const int steps = component->quant_tbl_no;
        return steps < NUM_QUANT_TBLS && jpeg.quant_tbl_ptrs[steps] != nullptr &&
               jpeg.quant_tbl_ptrs[steps]->quantval[0] != 0 &&
               is_own(jpeg.dc_huff_tbl_ptrs, component->dc_tbl_no) &&
               is_own(jpeg.ac_huff_tbl_ptrs, component->ac_tbl_no);
      });
}

/// Converts CMYK to RGBX in place. It takes all inks as inverted, as Adobe's files have them. PIL
/// does the same, whether or not Adobe's marker says so.
void convert_cmyk(std::uint8_t* pixels, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i, pixels += 4) {
    for (int c = 0; c < 3; ++c) {
      const unsigned product = unsigned{pixels[c]} * pixels[3];
      pixels[c] = static_cast<std::uint8_t>((product + 127) / 255);
    }
  }
}

constexpr std::size_t kPixelBytes = 4;

/// In the order of jpeg::kEngines. `own` is BaselineDecoder.
enum class Engine : std::uint8_t { own, libjpeg, nvjpeg };

class JpegDecoder final : public Decoder {
 public:
  explicit JpegDecoder(const Options& options)
      : augmentation_(read_augmentation("jpeg", options)),
        flip_(options.flag("flip")),
        fancy_(options.choice("upsampling", {{"fancy"}, {"plain"}}) == 0),
        whole_(options.choice("decode", {{"region"}, {"full"}}) == 1),
        shrink_(options.flag("shrink")),
        engine_(static_cast<Engine>(
            options.choice("engine", {jpeg::kEngines[0], jpeg::kEngines[1], jpeg::kEngines[2]}))),
        gpu_(engine_ == Engine::nvjpeg ? jpeg::make_gpu_decoder(fancy_) : nullptr),
        max_pixels_(options.integer("max_pixels")) {
    if (max_pixels_ < 1) throw ConfigError("jpeg: option 'max_pixels' must be at least 1");
    jpeg_.err = jpeg_std_error(&trap_.base);
    trap_.base.error_exit = ErrorTrap::jump;
    trap_.base.emit_message = ErrorTrap::on_message;
    trap_.base.output_message = ErrorTrap::print_nothing;
    scans_.base.progress_monitor = ScanLimit::check;
    if (setjmp(trap_.escape) != 0) throw Error(std::string("libjpeg: ") + trap_.text.data());
    create();
  }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
  ~JpegDecoder() override { jpeg_destroy_decompress(&jpeg_); }

  std::int64_t take_substituted() noexcept override { return std::exchange(substituted_, 0); }
  void decode(const Sample& sample, const ImageView& row, Random& random) override {
    if (const std::optional<ImageSize> size = png::size_of(sample.content())) {
      return read_png(sample, *size, row, random);
    }
    // No frame between here and libjpeg owns a resource that the jump would leak.
    if (setjmp(trap_.escape) != 0) refuse_trapped(sample);
    read_image(sample, row, random);
  }

 private:
  [[gnu::noinline]] void read_image(const Sample& sample, const ImageView& row, Random& random) {
    const std::span<const std::byte> bytes = sample.content();
    read_header(bytes);
    check_header(sample);
    jpeg_.do_fancy_upsampling = fancy_ ? TRUE : FALSE;
    const ImageSize size{static_cast<std::int32_t>(jpeg_.image_width),
                         static_cast<std::int32_t>(jpeg_.image_height)};
    const auto [region, mirrored, filter] = choose_view(sample, size, row, random);
    const bool scaled = shrink_ && !whole_ && is_antialiased(filter);
    const std::int32_t divisor = scaled ? choose_divisor(region, row.shape) : 1;
    const bool own = engine_ == Engine::own && divisor == 1 && read_frame(jpeg_, frame_);
    if (own || gpu_) resampler_.begin(region.columns, region.rows, mirrored, row, filter);
    const bool done =
        gpu_ ? decode_on_gpu(bytes, size) : own && (whole_ ? decode_whole() : decode_region());
    if (!done) {
      jpeg_.scale_num = 1;
      jpeg_.scale_denom = static_cast<unsigned>(divisor);
      jpeg_start_decompress(&jpeg_);
      resampler_.begin(shrink(region.columns, divisor, jpeg_.output_width),
                       shrink(region.rows, divisor, jpeg_.output_height), mirrored, row, filter);
      if (whole_) {
        read_whole();
      } else {
        read_region();
      }
    }
    distort(sample, row, random);
  }

  void read_png(const Sample& sample, ImageSize size, const ImageView& row, Random& random) {
    if (gpu_) ++substituted_;
    check_size(sample, static_cast<std::uint64_t>(size.width),
               static_cast<std::uint64_t>(size.height));
    const std::size_t line_bytes = static_cast<std::size_t>(size.width) * kPixelBytes;
    make_room(line_bytes * static_cast<std::size_t>(size.height));
    try {
      png::decode(sample.content(), image_.data());
    } catch (const DataError& error) {
      refuse(sample, std::string("libpng: ") + error.what());
    }
    const auto [region, mirrored, filter] = choose_view(sample, size, row, random);
    resampler_.begin(region.columns, region.rows, mirrored, row, filter);
    resample_whole(line_bytes);
    distort(sample, row, random);
  }

  struct View {
    Region region;
    bool mirrored;
    Filter filter;
  };
  View choose_view(const Sample& sample, ImageSize size, const ImageView& row,
                   Random& random) const {
    const Region region = choose_region(augmentation_.crop, size, row.shape, random, sample.boxes);
    const bool mirrored = flip_ && random.uniform() < 0.5;
    return {region, mirrored, augmentation_.filter(sample.index + sample.epoch)};
  }
  void distort(const Sample& sample, const ImageView& row, Random& random) {
    if (augmentation_.colour == Colour::none) return;
    colours_.apply(draw_colour(augmentation_.colour, sample.index + sample.epoch, random), row);
  }

  void create() {
    jpeg_create_decompress(&jpeg_);
    jpeg_.progress = &scans_.base;
  }

  /// jpeg_abort_decompress() keeps the tables of the image before, and libjpeg would use them for
  /// an image that lacks its own. Such an image, and one whose later scans may bring tables, gets a
  /// new decompressor.
  void read_header(std::span<const std::byte> bytes) {
    const auto read = [&] {
      jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(bytes.data()),
                   static_cast<unsigned long>(bytes.size()));
      jpeg_read_header(&jpeg_, TRUE);
    };
    jpeg_abort_decompress(&jpeg_);
    mark_tables(jpeg_);
    read();
    if (has_own_tables(jpeg_)) return;
    jpeg_destroy_decompress(&jpeg_);
    create();
    read();
  }

  void check_size(const Sample& sample, std::uint64_t width, std::uint64_t height) const {
    if (width * height <= static_cast<std::uint64_t>(max_pixels_)) return;
    refuse(sample, fmt::format("it says that it has {}x{} pixels, more than max_pixels={}", width,
                               height, max_pixels_));
  }

  void check_header(const Sample& sample) {
    check_size(sample, jpeg_.image_width, jpeg_.image_height);
    switch (jpeg_.jpeg_color_space) {
      case JCS_GRAYSCALE:
      case JCS_RGB:
      case JCS_YCbCr:
        jpeg_.out_color_space = JCS_EXT_RGBX;
        break;
      case JCS_CMYK:
      case JCS_YCCK:
        jpeg_.out_color_space = JCS_CMYK;
        break;
      default:
        refuse(sample, fmt::format("it has {} components, which is an unsupported colour space",
                                   jpeg_.num_components));
    }
  }

  /// The largest reduction that leaves the region no smaller than the output. Powers of two only:
  /// the others have no vector code, and cost more than they save.
  static std::int32_t choose_divisor(const Region& region, const ImageShape& output) {
    for (const std::int32_t divisor : {8, 4, 2}) {
      if (region.columns.length >= divisor * output.width &&
          region.rows.length >= divisor * output.height) {
        return divisor;
      }
    }
    return 1;
  }

  static Stretch shrink(const Stretch& stretch, std::int32_t divisor, JDIMENSION size) {
    const auto end =
        std::min(static_cast<std::int32_t>(size), (stretch.high + divisor - 1) / divisor);
    return {stretch.begin / divisor, stretch.length / divisor, stretch.low / divisor, end};
  }

  /// Decodes the region with BaselineDecoder. False if libjpeg has to decode it.
  bool decode_region() {
    if (!baseline_.begin(frame_, resampler_.columns(), resampler_.rows(), fancy_)) return false;
    resampler_.set_row_layout(baseline_.left(), baseline_.width());
    const bool done = baseline_.decode([this](std::int32_t row) {
      resampler_.rows_ready(row);
      return resampler_.row_buffer(row);
    });
    if (done) resampler_.rows_ready(resampler_.rows().end);
    return done;
  }

  /// False if libjpeg has to decode it: nvJPEG gets images of three components only, and libjpeg
  /// decides what counts as damage.
  bool decode_on_gpu(std::span<const std::byte> bytes, ImageSize size) {
    const PixelRange columns = resampler_.columns(), rows = resampler_.rows();
    const std::uint8_t* const lines =
        jpeg_.jpeg_color_space == JCS_YCbCr ? gpu_->decode(bytes, size, rows) : nullptr;
    if (lines == nullptr) {
      ++substituted_;
      return false;
    }
    resampler_.run([&](std::int32_t row, std::uint8_t* to) {
      const std::int64_t pixel = std::int64_t{row - rows.first} * size.width + columns.first;
      const std::uint8_t* from = lines + 3 * pixel;
      for (std::int32_t x = columns.first; x < columns.end; ++x, from += 3, to += kPixelBytes) {
        std::memcpy(to, from, 3);
      }
    });
    return true;
  }

  /// Decodes all pixels with BaselineDecoder. False if libjpeg has to decode them.
  bool decode_whole() {
    if (!baseline_.begin(frame_, {0, frame_.width}, {0, frame_.height}, fancy_)) return false;
    const std::size_t line_bytes = static_cast<std::size_t>(baseline_.width()) * kPixelBytes;
    make_room(line_bytes * static_cast<std::size_t>(frame_.height));
    const bool done = baseline_.decode([this, line_bytes](std::int32_t row) {
      return image_.data() + static_cast<std::size_t>(row) * line_bytes;
    });
    if (done) resample_whole(line_bytes);
    return done;
  }

  /// Decodes the region's rows and columns with libjpeg, and as few others as its interface allows.
  void read_region() {
    const PixelRange columns = resampler_.columns(), rows = resampler_.rows();
    const auto output_width = static_cast<std::int32_t>(jpeg_.output_width);
    const std::int32_t first =
        std::max(0, std::min(columns.first - kMargin, output_width - kNarrowest));
    const std::int32_t end =
        std::min(output_width, std::max(columns.end + kMargin, first + kNarrowest));
    auto left = static_cast<JDIMENSION>(first);
    auto width = static_cast<JDIMENSION>(end - first);
    if (width < jpeg_.output_width) jpeg_crop_scanline(&jpeg_, &left, &width);
    resampler_.set_row_layout(static_cast<std::int32_t>(left), static_cast<std::int32_t>(width));
    std::int32_t row = std::max(0, rows.first - kMargin);
    if (row > 0) jpeg_skip_scanlines(&jpeg_, static_cast<JDIMENSION>(row));
    while (row < rows.end) {
      JSAMPROW lines[Resampler::kRowsAhead];
      for (std::int32_t i = 0; i < Resampler::kRowsAhead; ++i)
        lines[i] = resampler_.row_buffer(row + i);
      row += static_cast<std::int32_t>(read_lines(lines, Resampler::kRowsAhead, width));
      resampler_.rows_ready(row);
    }
  }

  /// Decodes all pixels into a buffer that the next image reuses, and crops from there.
  void read_whole() {
    const std::size_t line_bytes = std::size_t{jpeg_.output_width} * kPixelBytes;
    make_room(line_bytes * jpeg_.output_height);
    while (jpeg_.output_scanline < jpeg_.output_height) {
      JSAMPROW lines[Resampler::kRowsAhead];
      const JDIMENSION left = jpeg_.output_height - jpeg_.output_scanline;
      const JDIMENSION count = std::min<JDIMENSION>(left, Resampler::kRowsAhead);
      for (JDIMENSION i = 0; i < count; ++i) {
        lines[i] = image_.data() + (jpeg_.output_scanline + i) * line_bytes;
      }
      read_lines(lines, count, jpeg_.output_width);
    }
    resample_whole(line_bytes);
  }

  void make_room(std::size_t bytes) {
    if (image_.size() < bytes) image_.resize(bytes);
  }

  void resample_whole(std::size_t line_bytes) {
    const PixelRange columns = resampler_.columns();
    resampler_.run([&](std::int32_t row, std::uint8_t* to) {
      const std::uint8_t* const line = image_.data() + static_cast<std::size_t>(row) * line_bytes;
      std::memcpy(to, line + static_cast<std::size_t>(columns.first) * kPixelBytes,
                  static_cast<std::size_t>(columns.end - columns.first) * kPixelBytes);
    });
  }

  /// Reads at most `most` rows of `width` pixels, as RGBX; returns how many.
  JDIMENSION read_lines(JSAMPROW* lines, JDIMENSION most, JDIMENSION width) {
    const JDIMENSION count = jpeg_read_scanlines(&jpeg_, lines, most);
    PENSTOCK_ASSERT(count > 0);
    if (jpeg_.out_color_space == JCS_CMYK) {
      for (JDIMENSION i = 0; i < count; ++i) convert_cmyk(lines[i], width);
    }
    return count;
  }

  [[noreturn]] void refuse_trapped(const Sample& sample) const {
    if (trap_.code == JERR_NO_SOI || trap_.code == JERR_INPUT_EMPTY) {
      refuse(sample, describe_first_bytes(sample.content()));
    }
    if (trap_.code == JERR_BAD_PROGRESSION && jpeg_.input_scan_number > kMaxScans) {
      refuse(sample, fmt::format("it has more than {} scans", kMaxScans));
    }
    refuse(sample, trap_.text.data());
  }

  const Augmentation augmentation_;
  const bool flip_, fancy_, whole_, shrink_;
  const Engine engine_;
  const std::unique_ptr<jpeg::GpuDecoder> gpu_;  // if engine_ is nvjpeg
  std::int64_t substituted_ = 0;
  const std::int64_t max_pixels_;
  ErrorTrap trap_{};
  ScanLimit scans_{};
  jpeg_decompress_struct jpeg_{};
  jpeg::Frame frame_;
  jpeg::BaselineDecoder baseline_;
  Resampler resampler_;
  ColourDistorter colours_;
  std::vector<std::uint8_t> image_;  // with decode=full: RGBX, as large as the largest image so far
};

std::unique_ptr<Decoder> make(const Options& options) {
  return std::make_unique<JpegDecoder>(options);
}

}  // namespace

extern constinit const DecoderEntry jpeg_decoder{
    .name = "jpeg",
    .summary = "JPEG images: decodes, crops, resizes and mirrors in one pass",
    .options = kJpegOptions,
    .make = make,
};

}  // namespace penstock
