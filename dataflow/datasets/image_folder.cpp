// SPDX-License-Identifier: Apache-2.0
// Image folders: the listings (class folders, or one folder with a file of labels), the source,
// which reads each file when its turn comes, and the writer.
#include "dataflow/datasets/image_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "dataflow/datasets/dataset_writer.h"
#include "dataflow/datasets/manifest.h"
#include "dataflow/datasets/sample_order.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/machine/file_reader.h"
#include "dataflow/machine/input_file.h"
#include "dataflow/source.h"

namespace penstock::datasets {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAdvice =
    "expected <class>/<image>.JPEG in it; `penstock dataset make` writes such a folder";

bool has_image_extension(const fs::path& path) {
  static constexpr std::string_view kExtensions[] = {
      ".jpg", ".jpeg", ".jpe", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp"};
  const std::string extension = canonical_name(path.extension().native());
  return std::find(std::begin(kExtensions), std::end(kExtensions), extension) !=
         std::end(kExtensions);
}

[[noreturn]] void refuse_folder(const std::string& path, const std::string& problem) {
  throw ConfigError("the image folder '" + path + "' " + problem + "; " + std::string(kAdvice));
}

/// Names in `directory` that `wanted` accepts, in byte order.
template <typename Wanted>
std::vector<std::string> list_names(const fs::path& directory, Wanted wanted) {
  std::vector<std::string> names;
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
      std::string name = entry.path().filename().native();
      if (name.front() != '.' && wanted(entry)) names.push_back(std::move(name));
    }
  } catch (const fs::filesystem_error& error) {
    const bool of_entry = error.path1() != directory;
    refuse_folder(directory.native(),
                  "cannot be read: " + (of_entry ? "'" + error.path1().native() + "': " : "") +
                      error.code().message());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool is_image(const fs::directory_entry& entry) {
  return has_image_extension(entry.path()) && !entry.is_directory();
}

/// Adds the images of one class.
void list_class(const fs::path& folder, ImageFiles& images) {
  images.files.open_folder(folder.native());
  for (const std::string& name : list_names(folder, is_image)) images.files.add(name);
  images.ends.push_back(images.files.size());
}

}  // namespace

std::vector<std::string> list_class_folders(const std::string& directory, std::int32_t limit) {
  const fs::path root(directory);
  std::error_code error;
  const fs::file_status status = fs::status(root, error);
  if (status.type() == fs::file_type::not_found) refuse_folder(directory, "does not exist");
  if (error) refuse_folder(directory, "cannot be read: " + error.message());
  if (!fs::is_directory(status)) refuse_folder(directory, "is no folder");
  std::vector<std::string> classes =
      list_names(root, [](const fs::directory_entry& entry) { return entry.is_directory(); });
  if (classes.empty()) {
    refuse_folder(directory, fs::is_empty(root) ? "is empty" : "has no class folders");
  }
  if (classes.size() > static_cast<std::size_t>(limit)) {
    throw ConfigError("the image folder '" + directory + "' has " + std::to_string(classes.size()) +
                      " classes; the model has " + std::to_string(limit) +
                      " outputs; pass --classes " + std::to_string(classes.size()) +
                      ", or choose another folder or model");
  }
  return classes;
}

ImageFiles list_image_files(const std::string& directory, std::int32_t classes,
                            const std::stop_token& stop) {
  const fs::path root(directory);
  const std::vector<std::string> names = list_class_folders(directory, classes);
  ImageFiles images;
  for (const std::string& name : names) {
    if (stop.stop_requested()) return images;
    list_class(root / name, images);
  }
  if (images.files.size() == 0) {
    std::error_code error;
    const bool is_parent = fs::is_directory(root / "train", error);
    refuse_folder(directory,
                  "has no images in its " + std::to_string(names.size()) + " class folders" +
                      (is_parent ? " (did you mean '" + (root / "train").native() + "'?)" : ""));
  }
  return images;
}

std::vector<std::string> list_image_names(const std::string& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) refuse_folder(directory, "is no folder");
  std::vector<std::string> names = list_names(directory, is_image);
  if (names.empty()) refuse_folder(directory, "contains no images");
  return names;
}

void read_image_file(const std::string& path, std::vector<std::byte>& bytes) {
  const SampleFile file(path.c_str());
  const std::uint64_t size = file.size_to_read();
  bytes.resize(size);
  for (std::size_t done = 0; done < size;) {
    const ssize_t count = ::read(file.descriptor(), bytes.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) file.refuse(std::strerror(errno));
    if (count == 0) file.refuse("it ended after " + std::to_string(done) + " bytes");
    done += static_cast<std::size_t>(count);
  }
}

// ---- images in one folder ---------------------------------------------------

namespace {

struct Line {
  std::string name;  // empty: the label belongs to the image with the same position
  std::string label;
  std::size_t number = 0;
};

class LabelFile {
 public:
  explicit LabelFile(const FlatImages& images) : images_(images) {
    std::istringstream file(content());
    std::string text;
    for (std::size_t number = 1; std::getline(file, text); ++number) {
      std::istringstream words(text);
      std::vector<std::string> parts;
      for (std::string word; words >> word;) parts.push_back(std::move(word));
      if (parts.empty()) continue;
      if (parts.size() > 2) refuse_line(number, "has more than a name and a label");
      Line line{.name = parts.size() == 2 ? parts[0] : "", .label = parts.back(), .number = number};
      if (!lines_.empty() && lines_.front().name.empty() != line.name.empty()) {
        refuse_line(number, "has another form than the first one");
      }
      lines_.push_back(std::move(line));
    }
    if (lines_.empty()) refuse("is empty");
    read_labels();
  }

  /// The labels of the images, which are in byte order.
  std::vector<std::int32_t> labels_of(const std::vector<std::string>& names) const {
    if (lines_.front().name.empty() && lines_.size() != names.size()) {
      refuse("has " + std::to_string(lines_.size()) + " labels, and the folder '" +
             images_.directory + "' " + std::to_string(names.size()) + " images");
    }
    std::vector<std::int32_t> labels;
    if (lines_.front().name.empty()) {
      labels = labels_;
    } else {
      std::map<std::string_view, std::int32_t> by_name;
      for (std::size_t i = 0; i < lines_.size(); ++i) by_name[lines_[i].name] = labels_[i];
      for (const std::string& name : names) {
        const auto found = by_name.find(name);
        if (found == by_name.end()) refuse("has no line for the image '" + name + "'");
        labels.push_back(found->second);
      }
    }
    return labels;
  }

 private:
  std::string content() const {
    try {
      return InputFile(images_.labels.c_str()).text();
    } catch (const DataError& error) {
      refuse(std::string("cannot be read: ") + error.what());
    }
  }

  static std::optional<std::int64_t> parse(const std::string& text) {
    std::int64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || at != end) return std::nullopt;
    return value;
  }

  void read_labels() {
    const bool numbers = parse(lines_.front().label).has_value();
    std::set<std::string> words;
    for (const Line& line : lines_) {
      if (parse(line.label).has_value() != numbers) {
        refuse_line(line.number, "mixes numbers and words as labels");
      }
      words.insert(line.label);
    }
    const std::vector<std::string> sorted(words.begin(), words.end());
    for (const Line& line : lines_) {
      const std::int64_t label =
          numbers ? *parse(line.label) - images_.label_base
                  : std::ranges::lower_bound(sorted, line.label) - sorted.begin();
      if (label < 0 || label >= images_.classes) {
        refuse_line(line.number, "has the label " + line.label + ", which is number " +
                                     std::to_string(label) + " of " +
                                     std::to_string(images_.classes) +
                                     " classes counted from 0: state label_base, or --classes");
      }
      labels_.push_back(static_cast<std::int32_t>(label));
    }
  }

  [[noreturn]] void refuse(const std::string& problem) const {
    throw ConfigError("the labels in '" + images_.labels + "': it " + problem +
                      "; expected a line `NAME LABEL` for each image, or `LABEL` for each in byte "
                      "order of the names; correct labels=FILE, or --data-dir");
  }
  [[noreturn]] void refuse_line(std::size_t number, const std::string& problem) const {
    refuse("has a line " + std::to_string(number) + " that " + problem);
  }

  const FlatImages& images_;
  std::vector<Line> lines_;
  std::vector<std::int32_t> labels_;  // one per line
};

}  // namespace

ImageFiles list_flat_images(const FlatImages& images) {
  const std::vector<std::string> names = list_image_names(images.directory);
  const LabelFile file(images);
  const std::vector<std::int32_t> labels = file.labels_of(names);
  std::vector<std::size_t> order(names.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return labels[i]; });
  ImageFiles sorted;
  sorted.files.open_folder(images.directory);
  for (const std::size_t i : order) {
    sorted.ends.resize(static_cast<std::size_t>(labels[i]) + 1, sorted.files.size());
    sorted.files.add(names[i]);
    ++sorted.ends.back();
  }
  return sorted;
}

// ---- source -----------------------------------------------------------------

ImageFiles open_image_folder(const DataPlan& plan, const Options& options) {
  const std::string &labels = options.text("labels"), &manifest = options.text("manifest");
  const bool named = manifest != "auto" && manifest != "off";
  if (!labels.empty()) {
    if (named) {
      throw ConfigError("image-folder: labels=" + labels + " lists one folder, and manifest=" +
                        manifest + " the class folders of another; leave one of them out");
    }
    return list_flat_images({.directory = plan.directory,
                             .labels = labels,
                             .label_base = options.integer("label_base"),
                             .classes = plan.classes});
  }
  if (named) return read_manifest(plan.directory, manifest, plan.classes);
  ImageFiles images = manifest == "off"
                          ? list_image_files(plan.directory, plan.classes, plan.stop)
                          : list_or_read_manifest(plan.directory, plan.classes, plan.stop);
  plan.expect_no_stop();
  return images;
}

namespace {

constexpr OptionSpec kOptions[] = {
    {"labels", "",
     "text file of labels for images in one folder, such as ImageNet's validation set: lines of "
     "`NAME LABEL`, or one label per image in byte order of names"},
    {"label_base", "0", "number of the first class in the file of labels"},
    {"manifest", "auto",
     "saved list of files from `penstock dataset index`: auto (.penstock-manifest in the folder, "
     "if it is up to date), off, or a file, which must be up to date"},
};

/// Reads each file when its turn comes.
class ImageFolder final : public Source {
 public:
  ImageFolder(const DataPlan& plan, ImageFiles images)
      : images_(std::move(images)), order_(plan, images_.files.size()) {}

  bool next(Sample& sample) override {
    const std::optional<SampleOrder::Turn> turn = order_.next();
    if (!turn) return false;
    sample.label = images_.label(turn->sample);
    sample.index = turn->sample;
    sample.epoch = turn->epoch;
    images_.files.path(turn->sample, sample.file);
    sample.offset = 0;
    sample.lent = {};
    sample.bytes.clear();
    return true;
  }

  void load(Sample& sample) const override { read_image_file(sample.file, sample.bytes); }

  SourceFacts facts() const override {
    return {.size = order_.size(),
            .size_over_ranks = order_.size_over_ranks(),
            .classes = images_.classes(),
            .files = &images_.files,
            .note = images_.note};
  }

 private:
  const ImageFiles images_;
  SampleOrder order_;
};

std::unique_ptr<Source> make(const DataPlan& plan, const Options& options) {
  return std::make_unique<ImageFolder>(plan, open_image_folder(plan, options));
}

// ---- writer -----------------------------------------------------------------

class ImageFolderWriter final : public DatasetWriter {
 public:
  explicit ImageFolderWriter(const WriterPlan& plan) : plan_(plan) {
    constexpr std::int32_t kMostClasses = 100'000;  // names have five digits, to sort as numbers
    if (plan.classes > kMostClasses) {
      throw ConfigError(
          fmt::format("the data have labels up to {}, and a folder of classes takes "
                      "at most {} of them; choose another format with --to",
                      plan.classes - 1, kMostClasses));
    }
    // Makes folders for all classes, so that a class without images keeps its label.
    for (std::int32_t label = 0; label < plan.classes; ++label) {
      std::error_code error;
      std::filesystem::create_directory(folder(label), error);
      if (error) {
        throw ConfigError(fmt::format("cannot make the folder '{}': {}; choose another with --out",
                                      folder(label), error.message()));
      }
    }
  }

  void add(std::span<const std::byte> image, std::int32_t label) override {
    ShardFile file(fmt::format("{}/{:08}.JPEG", folder(label), samples_++));
    file.append(image);
    file.close();
  }
  void finish() override {}

 private:
  std::string folder(std::int32_t label) const {
    return fmt::format("{}/{:05}", plan_.directory, label);
  }

  const WriterPlan plan_;
  std::uint64_t samples_ = 0;
};

}  // namespace

extern constinit const SourceEntry image_folder_source{
    .name = "image-folder",
    .summary = "a folder of class folders, as ImageNet unpacks: directory/<class>/<image>",
    .options = kOptions,
    .class_folders = true,
    .make = make,
};

extern constinit const DatasetWriterEntry image_folder_dataset_writer{
    .name = "image-folder",
    .summary = "one folder per class, one file per image",
    .make = make_writer<ImageFolderWriter>,
};

}  // namespace penstock::datasets
