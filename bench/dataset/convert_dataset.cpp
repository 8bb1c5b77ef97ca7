// SPDX-License-Identifier: Apache-2.0
#include "bench/dataset/convert_dataset.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <utility>

#include "bench/dataset/open_dataset.h"
#include "dataflow/decoder.h"
#include "dataflow/error.h"
#include "dataflow/source.h"
#include "dataflow/values/crc32c.h"

namespace penstock::dataset {
namespace {

namespace fs = std::filesystem;

std::uint64_t bytes_below(const fs::path& path) {
  std::uint64_t bytes = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  return bytes;
}

std::uint64_t bytes_of(const Source& source) {
  std::uint64_t bytes = 0;
  const FileList* const files = source.facts().files;
  for (std::size_t i = 0; files != nullptr && i < files->size(); ++i) {
    std::error_code error;
    const std::uintmax_t size = fs::file_size(files->path(i), error);
    if (!error) bytes += size;
  }
  return bytes;
}

/// A 64-bit digest of an image and its label, to compare what was read with what was written.
std::uint64_t digest(std::int32_t label, std::span<const std::byte> image) {
  const auto size = static_cast<std::uint32_t>(image.size());
  const std::uint32_t label_and_size = static_cast<std::uint32_t>(label) * 0x9e3779b9U + size;
  return std::uint64_t{label_and_size} << 32 | values::crc32c(image);
}

/// Converts a sample to the bytes to write; they are valid until the next call.
using Form = std::function<std::span<const std::byte>(const Sample&)>;

/// The content of a sample, unchanged; pixels are interleaved.
Form as_it_lies() {
  return [pixels = std::vector<std::byte>()](
             const Sample& sample) mutable -> std::span<const std::byte> {
    const PixelLayout& layout = sample.layout;
    const std::span<const std::byte> content = sample.content();
    if (layout.empty() || !layout.planar || layout.bytes() != content.size()) return content;
    pixels.resize(content.size());
    const auto channels = static_cast<std::size_t>(layout.channels);
    const std::size_t plane = content.size() / channels;
    for (std::size_t i = 0; i < plane; ++i) {
      for (std::size_t c = 0; c < channels; ++c) pixels[channels * i + c] = content[c * plane + i];
    }
    return pixels;
  };
}

/// The centre of an image, in pixels.
Form centre_of(SampleKind kind, std::int32_t size) {
  const std::string_view name = kind == SampleKind::pixels ? "raw" : "jpeg";
  const DecoderEntry& entry = find_entry(decoder_table(), name);
  const std::shared_ptr<Decoder> decoder = entry.make(
      Options(name, entry.options, {std::string(name), {{"crop", "center"}, {"flip", "false"}}}));
  const ImageShape shape{.height = size, .width = size, .channels = 3};
  return [=, pixels = std::vector<std::byte>(shape.elements())](
             const Sample& sample) mutable -> std::span<const std::byte> {
    Random random(0, 0, sample.index);
    decoder->decode(sample, {pixels.data(), shape, DType::u8, 3 * std::ptrdiff_t{size}}, random);
    return pixels;
  };
}

/// The result of one pass over a source.
struct Pass {
  std::vector<std::uint64_t> digests;  ///< of good samples, in their order
  std::set<std::uint64_t> bad;         ///< indices
  std::vector<std::string> reasons;
  std::uint64_t image_bytes = 0;
  double seconds = 0;
  bool stopped = false;
};

class Conversion {
 public:
  Conversion(const ConvertDataset& order, const datasets::DatasetWriterEntry& to,
             std::stop_token stop)
      : order_(order),
        to_(to),
        options_(to.name, to.options, order.options),
        stop_(std::move(stop)) {}

  ConvertedDataset run() {
    refuse_taken();
    const std::unique_ptr<Source> source = open();
    ConvertedDataset result;
    choose_form(*source);
    result.bytes_before = bytes_of(*source);
    Pass before = read("reading", *source, form_);
    if (before.stopped) return {.stopped = true};
    if (before.digests.empty()) {
      throw ConfigError("none of the samples of '{}' can be read: {}", order_.directory,
                        before.reasons.front());
    }
    result.samples = before.digests.size();
    result.left_out = before.reasons;
    result.shards = shards_for(before);
    const Staging staging(order_.out + ".partial");
    const auto began = std::chrono::steady_clock::now();
    if (!write(before, {.directory = staging.path(),
                        .samples = result.samples,
                        .shards = result.shards,
                        .classes = source->facts().classes,
                        .image_size = image_size_})) {
      return {.stopped = true};
    }
    result.write_s = seconds_since(began);
    const std::unique_ptr<Source> written = open_dataset({.directory = staging.path(),
                                                          .source = std::string(to_.name),
                                                          .threads = order_.threads,
                                                          .stop = stop_});
    Pass after = read("reading back", *written, as_it_lies());
    if (after.stopped) return {.stopped = true};
    // Both read from the page cache now, if the data fit.
    const Pass again = read("reading again", *open(), form_);
    if (again.stopped) return {.stopped = true};
    compare(std::move(before.digests), std::move(after.digests));
    result.read_before_s = again.seconds;
    result.read_after_s = after.seconds;
    result.bytes_after = bytes_below(staging.path());
    staging.keep_as(order_.out);
    return result;
  }

 private:
  /// A folder that is removed with its contents, unless it is kept.
  class Staging {
   public:
    explicit Staging(std::string path) : path_(std::move(path)) {
      std::error_code error;
      fs::remove_all(path_, error);
      fs::create_directories(path_, error);
      if (error) refuse("make the folder", path_, error);
    }
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;
    ~Staging() {
      std::error_code ignored;
      fs::remove_all(path_, ignored);
    }
    const std::string& path() const noexcept { return path_; }
    void keep_as(const std::string& name) const {
      std::error_code error;
      fs::rename(path_, name, error);
      if (error) refuse("rename the result to", name, error);
    }

   private:
    [[noreturn]] static void refuse(std::string_view what, const std::string& path,
                                    const std::error_code& error) {
      throw ConfigError("cannot {} '{}': {}; choose another folder with --out", what, path,
                        error.message());
    }
    const std::string path_;
  };

  void refuse_taken() const {
    std::error_code error;
    if (!fs::exists(fs::symlink_status(order_.out, error))) return;
    if (fs::is_directory(order_.out, error) && fs::is_empty(order_.out, error)) return;
    throw ConfigError(
        "--out is '{}', which already exists; expected a new folder; choose another name, or "
        "remove it",
        order_.out);
  }

  void choose_form(const Source& source) {
    if (to_.image_size > 0) {
      image_size_ = order_.image_size > 0 ? order_.image_size : to_.image_size;
      form_ = centre_of(source.facts().kind, image_size_);
      return;
    }
    if (order_.image_size > 0) {
      throw ConfigError(
          "--image-size is of formats that hold pixels, and '{}' holds encoded images; leave it "
          "out",
          to_.name);
    }
    if (source.facts().kind == SampleKind::pixels) {
      throw ConfigError(
          "the data in '{}' are pixels, and '{}' holds encoded images; expected such images; "
          "choose other data, or a format that holds pixels",
          order_.directory, to_.name);
    }
    form_ = as_it_lies();
  }

  std::unique_ptr<Source> open() const {
    return open_dataset(
        {order_.directory, order_.source, order_.shuffle, order_.seed, order_.threads, stop_});
  }

  std::uint64_t shards_for(const Pass& before) const {
    const std::uint64_t samples = before.digests.size();
    const std::uint64_t fitting = (before.image_bytes + order_.shard_bytes - 1) /
                                  std::max<std::uint64_t>(order_.shard_bytes, 1);
    const std::uint64_t asked = order_.shards > 0 ? order_.shards : fitting;
    return std::clamp<std::uint64_t>(to_.shards > 0 ? to_.shards : asked, 1, samples);
  }

  Pass read(std::string_view phase, Source& source, const Form& form) const {
    Pass pass;
    const std::uint64_t total = source.facts().size;
    pass.digests.reserve(total);
    const auto began = std::chrono::steady_clock::now();
    Sample sample;
    for (std::uint64_t done = 0; !(pass.stopped = stop_.stop_requested());) {
      try {
        if (!source.next(sample)) break;
        source.load(sample);
        const std::span<const std::byte> image = form(sample);
        pass.digests.push_back(digest(sample.label, image));
        pass.image_bytes += image.size();
      } catch (const DataError& error) {
        if (!order_.skips_bad) throw;
        pass.bad.insert(sample.index);
        pass.reasons.emplace_back(error.what());
      }
      ++done;
      if (order_.on_progress) order_.on_progress(phase, done, total);
    }
    pass.seconds = seconds_since(began);
    return pass;
  }

  /// Returns false if stopped.
  bool write(const Pass& before, const datasets::WriterPlan& plan) const {
    const std::unique_ptr<datasets::DatasetWriter> writer = to_.make(plan, options_);
    const std::unique_ptr<Source> source = open();
    std::uint64_t done = 0;
    for (Sample sample; source->next(sample);) {
      if (stop_.stop_requested()) return false;
      if (before.bad.contains(sample.index)) continue;
      source->load(sample);
      const std::span<const std::byte> image = form_(sample);
      if (done == plan.samples || digest(sample.label, image) != before.digests[done]) {
        refuse_changed();
      }
      writer->add(image, sample.label);
      ++done;
      if (order_.on_progress) order_.on_progress("writing", done, plan.samples);
    }
    if (done != plan.samples) refuse_changed();
    writer->finish();
    return true;
  }

  [[noreturn]] void refuse_changed() const {
    throw ConfigError(
        "the data in '{}' changed while they were read; wait until no process writes to them, then "
        "convert again",
        order_.directory);
  }

  /// Compares sorted, because formats may change the order.
  void compare(std::vector<std::uint64_t> before, std::vector<std::uint64_t> after) const {
    std::ranges::sort(before);
    std::ranges::sort(after);
    if (before == after) return;
    throw Error(
        "what was written to '{}' reads back differently: {} samples of {}, or other bytes or "
        "labels; the disk may be failing; nothing was kept",
        order_.out, after.size(), before.size());
  }

  static double seconds_since(std::chrono::steady_clock::time_point began) {
    return to_seconds(std::chrono::steady_clock::now() - began);
  }

  const ConvertDataset& order_;
  const datasets::DatasetWriterEntry& to_;
  const Options options_;
  const std::stop_token stop_;
  std::int32_t image_size_ = 0;  // of pixels
  Form form_;
};

}  // namespace

double ConvertedDataset::payback_epochs() const noexcept {
  const double saved = read_before_s - read_after_s;
  return saved > 0 ? write_s / saved : -1;
}

ConvertedDataset convert_dataset(const ConvertDataset& order,
                                 const datasets::DatasetWriterEntry& to,
                                 const std::stop_token& stop) {
  return Conversion(order, to, stop).run();
}

}  // namespace penstock::dataset
