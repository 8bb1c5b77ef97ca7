// SPDX-License-Identifier: Apache-2.0
#include "bench/dataset/inspect_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "bench/dataset/open_dataset.h"
#include "bench/record/statistics.h"
#include "dataflow/datasets/detect_source.h"
#include "dataflow/datasets/image_folder.h"
#include "dataflow/decoder.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/machine/input_file.h"
#include "dataflow/options.h"
#include "dataflow/random.h"
#include "dataflow/source.h"

namespace penstock::dataset {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kOddShown = 20, kSizesShown = 6;
constexpr const char* kNoEndMarker = "has no end marker: cut short, or with something behind it";

/// JPEGs end in the marker FF D9; truncated files do not.
bool has_end_marker(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[bytes.size() - 2] == std::byte{0xff} &&
         bytes.back() == std::byte{0xd9};
}

bool is_png(const JpegHeader& header) { return header.colour_space == "PNG"; }

// ---- samples of any source ---------------------------------------------------

std::unique_ptr<Source> open(const DatasetInventory& inventory, const std::stop_token& stop) {
  return open_dataset(
      {.directory = inventory.of.directory, .source = inventory.of.source, .stop = stop});
}

std::string name_of(const Sample& sample) {
  return fmt::format("{} at byte {}", sample.file, sample.offset);
}

void add_odd(DatasetInventory& inventory, const Sample& sample, std::string reason) {
  inventory.odd.push_back({fmt::format("sample {}", sample.index), std::move(reason)});
}

/// Calls `use` for each readable sample, until `use` ends the loop. Unreadable samples are skipped,
/// and reported if `names_bad`. Damage that `use` finds skips only that sample.
template <class Use>
void for_each_sample(Source& source, DatasetInventory& inventory, bool names_bad, const Use& use) {
  Sample sample;
  for (bool goes_on = true; goes_on;) {
    try {
      goes_on = source.next(sample) && use(sample);
    } catch (const DataError& error) {
      if (names_bad) add_odd(inventory, sample, error.what());
    }
  }
}

void count_size(DatasetInventory& inventory, std::int32_t width, std::int32_t height,
                std::int64_t bytes) {
  inventory.file_bytes.push_back(static_cast<double>(bytes));
  inventory.widths.push_back(width);
  inventory.heights.push_back(height);
  ++inventory.sizes[fmt::format("{}x{}", width, height)];
  inventory.portrait += height > width ? 1 : 0;
}

void count_jpeg(DatasetInventory& inventory, const JpegHeader& header, std::int64_t bytes) {
  count_size(inventory, header.width, header.height, bytes);
  ++inventory.subsamplings[header.subsampling];
  ++inventory.colour_spaces[header.colour_space];
  inventory.progressive += header.progressive ? 1 : 0;
}

void count_sample(DatasetInventory& inventory, const Sample& sample, SampleKind kind) {
  const auto bytes = static_cast<std::int64_t>(sample.content().size());
  if (kind == SampleKind::encoded) {
    const JpegHeader header = read_jpeg_header(sample.content(), name_of(sample));
    count_jpeg(inventory, header, bytes);
    if (!is_png(header) && !has_end_marker(sample.content())) {
      add_odd(inventory, sample, fmt::format("{} {}", name_of(sample), kNoEndMarker));
    }
    return;
  }
  const PixelLayout& layout = sample.layout;
  count_size(inventory, layout.width, layout.height, bytes);
  ++inventory.colour_spaces[layout.channels == 1 ? "grey pixels"
                                                 : (layout.bgr ? "BGR pixels" : "RGB pixels")];
}

/// The whole image, scaled down if it does not fit.
Photo draw(Decoder& decoder, const Sample& sample, SampleKind kind, std::int32_t width,
           std::int32_t height) {
  std::int32_t full_width = sample.layout.width, full_height = sample.layout.height;
  if (kind == SampleKind::encoded) {
    const JpegHeader header = read_jpeg_header(sample.content(), name_of(sample));
    full_width = header.width;
    full_height = header.height;
  }
  const double scale = std::min(
      {1.0, static_cast<double>(width) / full_width, static_cast<double>(height) / full_height});
  const auto scaled = [&](std::int32_t length) {
    return std::max(1, static_cast<std::int32_t>(scale * length));
  };
  const ImageShape shape{.height = scaled(full_height), .width = scaled(full_width), .channels = 3};
  Photo photo{shape.width, shape.height, std::vector<std::uint8_t>(shape.elements())};
  Random random(0, 0, sample.index);
  decoder.decode(sample,
                 {reinterpret_cast<std::byte*>(photo.rgb.data()), shape, DType::u8,
                  std::ptrdiff_t{3} * shape.width},
                 random);
  return photo;
}

/// Fills in all of `inventory` except `of`, in one pass over the samples. Throws ConfigError if
/// there is no such data set or no usable sample.
void inspect_samples(DatasetInventory& inventory, const std::stop_token& stop) {
  const std::unique_ptr<Source> source = open(inventory, stop);
  const SampleKind kind = source->facts().kind;
  std::map<std::int32_t, ClassInventory> classes;
  for_each_sample(*source, inventory, true, [&](Sample& sample) {
    if (stop.stop_requested()) return false;
    source->load(sample);
    count_sample(inventory, sample, kind);
    ClassInventory& owner = classes[sample.label];
    owner.bytes += static_cast<std::int64_t>(sample.content().size());
    owner.samples.push_back(sample.index);
    return true;
  });
  for (auto& [label, owner] : classes) {
    owner.name = fmt::format("label {}", label);
    owner.label = label;
    inventory.classes.push_back(std::move(owner));
  }
  inventory.note = source->facts().note;
  if (inventory.images() > 0 || stop.stop_requested()) return;
  throw ConfigError("{} holds no image that can be read{}{}; check --data-dir",
                    inventory.of.directory, inventory.odd.empty() ? "" : "; the first: ",
                    inventory.odd.empty() ? "" : inventory.odd.front().reason);
}

// ---- files of class folders --------------------------------------------------

std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (!entry.path().filename().string().starts_with('.')) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool ends_as_a_jpeg(const fs::path& path) {
  const InputFile file(path);
  const std::string end = file.part(file.size() - std::min<std::uint64_t>(file.size(), 2), 2);
  return end.size() == 2 && has_end_marker(std::as_bytes(std::span(end)));
}

/// True if the name fits the format of the image.
bool is_well_named(const fs::path& path, const JpegHeader& header) {
  const std::string extension = canonical_name(path.extension().native());
  return is_png(header) ? extension == ".png" : extension == ".jpeg" || extension == ".jpg";
}

void add_image(DatasetInventory& inventory, ClassInventory& owner, const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    inventory.odd.push_back({path.string(), "not a file"});
    return;
  }
  if (const auto kind = datasets::listed_file(path.native()); kind != datasets::ListedFile::image) {
    inventory.odd.push_back({path.string(), kind == datasets::ListedFile::undecoded
                                                ? "an image of a format that is not decoded"
                                                : "no image by its name, so runs leave it out"});
    return;
  }
  const auto bytes = static_cast<std::int64_t>(fs::file_size(path, error));
  JpegHeader header;
  try {
    header = read_jpeg_header(path.string());
    count_jpeg(inventory, header, bytes);
    owner.bytes += bytes;
    owner.files.push_back(path.string());
  } catch (const DataError& failure) {
    inventory.odd.push_back({path.string(), failure.what()});
    return;
  }
  if (!is_well_named(path, header)) {
    inventory.odd.push_back(
        {path.string(), is_png(header) ? "a PNG by another name" : "a JPEG by another name"});
  } else if (!is_png(header) && !ends_as_a_jpeg(path)) {
    inventory.odd.push_back({path.string(), kNoEndMarker});
  }
}

// ---- text --------------------------------------------------------------------

struct Summary {
  double low = 0, mean = 0, median = 0, high = 0;
};

Summary summary(std::span<const double> values) {
  if (values.empty()) return {};
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {*low, sum / static_cast<double>(values.size()), median(values), *high};
}

Json to_json(const Summary& values) {
  return {
      {"min", values.low}, {"mean", values.mean}, {"median", values.median}, {"max", values.high}};
}

using Count = std::pair<std::string, std::int64_t>;

/// Sorts by frequency, the highest first.
std::vector<Count> ranked(const std::map<std::string, std::int64_t>& counts) {
  std::vector<Count> result(counts.begin(), counts.end());
  std::stable_sort(result.begin(), result.end(),
                   [](const Count& a, const Count& b) { return a.second > b.second; });
  return result;
}

std::string counts_text(const std::map<std::string, std::int64_t>& counts, std::size_t shown) {
  std::string text;
  const std::vector<Count> all = ranked(counts);
  for (std::size_t i = 0; i < std::min(shown, all.size()); ++i) {
    text += fmt::format("{}{} ({})", i == 0 ? "" : ", ", all[i].first, all[i].second);
  }
  if (all.size() > shown) text += fmt::format(" and {} others", all.size() - shown);
  return text;
}

double total_bytes(const DatasetInventory& inventory) {
  return std::accumulate(inventory.file_bytes.begin(), inventory.file_bytes.end(), 0.0);
}

bool has_class_folders(std::string_view source) {
  const SourceEntry* const entry = match_entry(source_table(), source);
  return entry != nullptr && entry->class_folders;
}

/// Sources with options, such as labels of a flat folder, read their samples themselves.
bool is_folder_of_files(const ComponentText& source) {
  return has_class_folders(source.name) && source.values.empty();
}

[[noreturn]] void no_images(const fs::path& directory, const DatasetInventory& inventory) {
  std::string text = fmt::format("{} holds no JPEG or PNG; expected a folder of class folders",
                                 directory.string());
  std::error_code error;
  if (fs::is_directory(directory / "train", error)) {
    text += fmt::format("; did you mean --data-dir {}?", (directory / "train").string());
  } else if (!inventory.odd.empty()) {
    text += fmt::format("; {}: {}", inventory.odd.front().path, inventory.odd.front().reason);
  } else {
    text += "; `penstock dataset make` makes one";
  }
  throw ConfigError(text);
}

void inspect_folder(DatasetInventory& inventory, const std::stop_token& stop) {
  const std::string& directory = inventory.of.directory;
  try {
    for (const fs::path& folder : sorted_entries(directory)) {
      if (!fs::is_directory(folder)) {
        inventory.odd.push_back({folder.string(), "is beside the class folders"});
        continue;
      }
      const auto label = static_cast<std::int32_t>(inventory.classes.size());
      ClassInventory& owner = inventory.classes.emplace_back();
      owner.name = folder.filename().string();
      owner.label = label;
      for (const fs::path& path : sorted_entries(folder)) {
        if (stop.stop_requested()) return;
        add_image(inventory, owner, path);
      }
    }
  } catch (const fs::filesystem_error& error) {
    throw ConfigError(
        "cannot read {}: {}; expected a folder of class folders of images; `penstock dataset make` "
        "makes one",
        error.path1().string(), error.code().message());
  }
  if (inventory.images() == 0) no_images(directory, inventory);
}

}  // namespace

DatasetInventory inspect_dataset(const InspectDataset& order, const std::stop_token& stop) {
  const ComponentText source = datasets::source_text(order.source, order.directory);
  DatasetInventory inventory;
  inventory.of = order;
  inventory.format = source.name;
  if (is_folder_of_files(source)) {
    inspect_folder(inventory, stop);
  } else {
    inspect_samples(inventory, stop);
  }
  return inventory;
}

std::map<std::uint64_t, Photo> draw_samples(DatasetInventory& inventory,
                                            std::set<std::uint64_t> indices, std::int32_t width,
                                            std::int32_t height, const std::stop_token& stop) {
  const std::unique_ptr<Source> source = open(inventory, stop);
  const SampleKind kind = source->facts().kind;
  const std::unique_ptr<Decoder> decoder = make_whole_image_decoder(kind);
  std::map<std::uint64_t, Photo> photos;
  std::size_t found = 0;
  for_each_sample(*source, inventory, false, [&](Sample& sample) {
    if (stop.stop_requested() || found == indices.size()) return false;
    if (!indices.contains(sample.index)) return true;
    ++found;
    try {
      source->load(sample);
      photos.emplace(sample.index, draw(*decoder, sample, kind, width, height));
    } catch (const DataError& error) {
      add_odd(inventory, sample, error.what());
    }
    return true;
  });
  return photos;
}

std::string to_text(const DatasetInventory& inventory) {
  const Summary bytes = summary(inventory.file_bytes);
  const Summary widths = summary(inventory.widths), heights = summary(inventory.heights);
  std::string text =
      fmt::format("{}: {} images in {} classes, {:.1f} MB\n", inventory.of.directory,
                  inventory.images(), inventory.classes.size(), 1e-6 * total_bytes(inventory));
  if (!has_class_folders(inventory.format)) {
    text += fmt::format("format       {}{}{}\n", inventory.format,
                        inventory.note.empty() ? "" : "; ", inventory.note);
  }
  text += fmt::format("image bytes  min {:.1f}  mean {:.1f}  median {:.1f}  max {:.1f} kB\n",
                      1e-3 * bytes.low, 1e-3 * bytes.mean, 1e-3 * bytes.median, 1e-3 * bytes.high);
  const auto line = [&](std::string_view name, const Summary& of) {
    text += fmt::format("{:<12} min {:.0f}  mean {:.0f}  median {:.0f}  max {:.0f} pixels\n", name,
                        of.low, of.mean, of.median, of.high);
  };
  line("width", widths);
  line("height", heights);
  text += fmt::format("sizes        {}; {} portrait\n", counts_text(inventory.sizes, kSizesShown),
                      inventory.portrait);
  if (!inventory.subsamplings.empty()) {
    text += fmt::format("subsampling  {}\n", counts_text(inventory.subsamplings, kSizesShown));
    text += fmt::format("progressive  {}\n", inventory.progressive);
  }
  text += fmt::format("colours      {}\n", counts_text(inventory.colour_spaces, kSizesShown));
  text += fmt::format("odd          {}\n", inventory.odd.size());
  for (std::size_t i = 0; i < std::min(kOddShown, inventory.odd.size()); ++i) {
    text += fmt::format("  {}: {}\n", inventory.odd[i].path, inventory.odd[i].reason);
  }
  if (inventory.odd.size() > kOddShown) {
    text += fmt::format("  and {} more; --json names all\n", inventory.odd.size() - kOddShown);
  }
  text += fmt::format("\nlabel  {:<24} images  mean kB\n", "class");
  for (const ClassInventory& one : inventory.classes) {
    const double count = std::max(1.0, static_cast<double>(one.images()));
    text += fmt::format("{:>5}  {:<24} {:>6}  {:>7.1f}\n", one.label, one.name, one.images(),
                        1e-3 * static_cast<double>(one.bytes) / count);
  }
  return text;
}

Json to_json(const DatasetInventory& inventory) {
  const auto counts = [](const std::map<std::string, std::int64_t>& of) {
    Json json = Json::object();
    for (const auto& [name, count] : ranked(of)) json[name] = count;
    return json;
  };
  Json classes = Json::array(), odd = Json::array();
  for (const ClassInventory& one : inventory.classes) {
    classes.push_back(
        {{"name", one.name}, {"label", one.label}, {"images", one.images()}, {"bytes", one.bytes}});
  }
  for (const OddFile& file : inventory.odd) {
    odd.push_back({{"file", file.path}, {"reason", file.reason}});
  }
  return {{"directory", inventory.of.directory},
          {"source", inventory.format},
          {"note", inventory.note},
          {"images", inventory.images()},
          {"bytes", static_cast<std::int64_t>(total_bytes(inventory))},
          {"file_bytes", to_json(summary(inventory.file_bytes))},
          {"width", to_json(summary(inventory.widths))},
          {"height", to_json(summary(inventory.heights))},
          {"sizes", counts(inventory.sizes)},
          {"portrait", inventory.portrait},
          {"subsampling", counts(inventory.subsamplings)},
          {"colour_space", counts(inventory.colour_spaces)},
          {"progressive", inventory.progressive},
          {"classes", classes},
          {"odd_files", odd}};
}

}  // namespace penstock::dataset
