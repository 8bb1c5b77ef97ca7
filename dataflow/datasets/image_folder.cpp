// SPDX-License-Identifier: Apache-2.0
// Image folders: the listings (class folders, or one folder with a file of labels), the source,
// which reads each file when its turn comes, and the writer.
#include "dataflow/datasets/image_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "dataflow/datasets/dataset_writer.h"
#include "dataflow/datasets/manifest.h"
#include "dataflow/datasets/sample_order.h"
#include "dataflow/datasets/shard_list.h"
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

/// True if a file without an extension begins as a JPEG or PNG image.
bool begins_as_image(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  std::ifstream file(path, std::ios::binary);
  std::array<char, 4> begin{};
  file.read(begin.data(), begin.size());
  const std::string_view text(begin.data(), static_cast<std::size_t>(file.gcount()));
  return text.starts_with("\xff\xd8\xff") || text == "\x89PNG";
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

/// Images that a listing leaves out.
class LeftOut {
 public:
  /// False for an image that is not decoded, which it counts.
  bool is_listed(const fs::directory_entry& entry) {
    if (entry.is_directory()) return false;
    const ListedFile kind = listed_file(entry.path().native());
    if (kind == ListedFile::undecoded && undecoded_++ == 0) undecoded_example_ = entry.path();
    if (kind == ListedFile::other && other_.empty()) other_ = entry.path().native();
    return kind == ListedFile::image;
  }

  /// Counts the images in and below a folder in a class folder.
  void look_deeper(const fs::path& folder) {
    std::error_code error;
    fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied,
                                           error);
    for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
      std::error_code ignored;
      if (entry->path().filename().native().front() == '.') {
        entry.disable_recursion_pending();
      } else if (!entry->is_directory(ignored) &&
                 listed_file(entry->path().native()) == ListedFile::image && deeper_++ == 0) {
        deeper_example_ = entry->path();
        levels_ = entry.depth() + 1;
      }
    }
  }

  /// The format of the first file that is no image; empty if it is unknown.
  std::string other_format() const {
    const std::string format = other_.empty() ? "" : format_of(other_);
    return format.empty() ? "" : "; '" + other_ + "' is " + format;
  }

  /// Empty if nothing was left out.
  std::string note() const {
    std::string text;
    if (deeper_ > 0) {
      text = fmt::format("{} images lie {} deeper than their class folders, such as '{}'", deeper_,
                         levels_ == 1 ? "one folder" : fmt::format("{} folders", levels_),
                         deeper_example_.native());
    }
    if (undecoded_ > 0) {
      text += fmt::format(
          "{}{} images are of a format that is not decoded, such as '{}'; convert them to JPEG or "
          "PNG",
          text.empty() ? "" : "; ", undecoded_, undecoded_example_.native());
    }
    return text;
  }

 private:
  std::uint64_t deeper_ = 0, undecoded_ = 0;
  int levels_ = 0;
  fs::path deeper_example_, undecoded_example_;
  std::string other_;
};

/// Adds the images of one class.
void list_class(const fs::path& folder, ImageFiles& images, LeftOut& left_out) {
  images.files.open_folder(folder.native());
  const auto wanted = [&](const fs::directory_entry& entry) {
    if (entry.is_directory()) left_out.look_deeper(entry.path());
    return left_out.is_listed(entry);
  };
  for (const std::string& name : list_names(folder, wanted)) images.files.add(name);
  images.ends.push_back(images.files.size());
}

}  // namespace

ListedFile listed_file(const std::string& path) {
  static constexpr std::string_view kDecoded[] = {".jpg",   ".jpeg", ".jpe", ".jfif",
                                                  ".pjpeg", ".pjp",  ".png"};
  static constexpr std::string_view kUndecoded[] = {".webp", ".bmp",  ".gif", ".ppm",  ".pgm",
                                                    ".tif",  ".tiff", ".jp2", ".avif", ".heic"};
  const fs::path name(path);
  const std::string extension = canonical_name(name.extension().native());
  if (extension.empty()) return begins_as_image(name) ? ListedFile::image : ListedFile::other;
  if (std::ranges::find(kDecoded, extension) != std::end(kDecoded)) return ListedFile::image;
  return std::ranges::find(kUndecoded, extension) != std::end(kUndecoded) ? ListedFile::undecoded
                                                                          : ListedFile::other;
}

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
  LeftOut left_out;
  for (const std::string& name : names) {
    if (stop.stop_requested()) return images;
    list_class(root / name, images, left_out);
  }
  images.note = left_out.note();
  if (images.files.size() == 0) {
    std::error_code error;
    const bool is_parent = fs::is_directory(root / "train", error);
    refuse_folder(directory,
                  "has no images in its " + std::to_string(names.size()) + " class folders" +
                      (is_parent ? " (did you mean '" + (root / "train").native() + "'?)" : "") +
                      (images.note.empty() ? "" : "; " + images.note) + left_out.other_format());
  }
  if (!images.note.empty()) images.note = "left out: " + images.note;
  return images;
}

std::vector<std::string> list_image_names(const std::string& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) refuse_folder(directory, "is no folder");
  std::vector<std::string> names = list_names(directory, [](const fs::directory_entry& entry) {
    return !entry.is_directory() && listed_file(entry.path().native()) == ListedFile::image;
  });
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

/// The fields of a line: between tabs, commas or semicolons, or else words. Quotes are removed.
std::vector<std::string> fields_of(const std::string& text) {
  std::vector<std::string> fields;
  const std::size_t separator = text.find_first_of("\t,;");
  std::istringstream line(text);
  if (separator == std::string::npos) {
    for (std::string word; line >> word;) fields.push_back(std::move(word));
    return fields;
  }
  for (std::string field; std::getline(line, field, text[separator]);) {
    constexpr std::string_view kAround = " \r\"'";
    const std::size_t begin = field.find_first_not_of(kAround);
    fields.push_back(begin == std::string::npos
                         ? ""
                         : field.substr(begin, field.find_last_not_of(kAround) + 1 - begin));
  }
  return fields;
}

template <typename Number>
std::optional<Number> parse(const std::string& text) {
  Number value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end) return std::nullopt;
  return value;
}

std::string without_extension(std::string_view name) { return fs::path(name).stem().native(); }

class LabelFile {
 public:
  /// `names`: of the images, in byte order.
  LabelFile(const FlatImages& images, const std::vector<std::string>& names)
      : images_(images), names_(names) {
    std::istringstream file(content());
    std::string text;
    for (std::size_t number = 1; std::getline(file, text); ++number) {
      std::vector<std::string> parts = fields_of(text);
      if (parts.empty()) continue;
      if (parts.size() > 2) refuse_line(number, "has more than a name and a label");
      if (parts.front().empty() || parts.back().empty()) refuse_line(number, "lacks a field");
      Line line{.name = parts.size() == 2 ? fs::path(parts[0]).filename().native() : "",
                .label = parts.back(),
                .number = number};
      if (!lines_.empty() && lines_.front().name.empty() != line.name.empty()) {
        refuse_line(number, "has another form than the first one");
      }
      lines_.push_back(std::move(line));
    }
    if (lines_.empty()) refuse("is empty");
    drop_header();
    read_labels();
  }

  /// The labels of the images.
  std::vector<std::int32_t> labels() const {
    if (lines_.front().name.empty()) {
      if (lines_.size() == names_.size()) return labels_;
      refuse("has " + std::to_string(lines_.size()) + " labels, the first of which is '" +
             lines_.front().label + "', and the folder '" + images_.directory + "' " +
             std::to_string(names_.size()) + " images");
    }
    std::map<std::string_view, std::int32_t> by_name;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      if (by_name.emplace(lines_[i].name, labels_[i]).first->second != labels_[i]) {
        refuse_line(lines_[i].number, "names '" + lines_[i].name + "' again, with another label");
      }
    }
    std::vector<std::int32_t> labels;
    for (const std::string& name : names_) {
      auto found = by_name.find(name);
      if (found == by_name.end()) found = by_name.find(without_extension(name));
      if (found == by_name.end()) {
        refuse("has no line for the image '" + name + "'; its first line names '" +
               lines_.front().name + "'");
      }
      labels.push_back(found->second);
    }
    return labels;
  }

  /// What was assumed about the file.
  const std::string& note() const noexcept { return note_; }

 private:
  std::string content() const {
    std::string text;
    try {
      text = InputFile(images_.labels.c_str()).text();
    } catch (const DataError& error) {
      refuse(std::string("cannot be read: ") + error.what());
    }
    if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
      refuse("is text in UTF-16; save it in UTF-8");
    }
    return text.starts_with("\xef\xbb\xbf") ? text.substr(3) : text;
  }

  /// A first line names columns if it names no image, and its label is no label of another line.
  void drop_header() {
    if (lines_.size() < 2) return;
    const Line& first = lines_.front();
    const auto is_number = [](const Line& line) { return parse<double>(line.label).has_value(); };
    bool names_columns = !is_number(first) && is_number(lines_[1]);
    if (!first.name.empty() && !is_number(first)) {
      const bool is_image = std::ranges::any_of(names_, [&](const std::string& name) {
        return name == first.name || without_extension(name) == first.name;
      });
      const bool is_label = std::ranges::count(lines_, first.label, &Line::label) > 1;
      names_columns = !is_image && !is_label && fs::path(first.name).extension().empty();
    }
    if (!names_columns) return;
    add_note("line " + std::to_string(first.number) + " of '" + images_.labels + "', '" +
             (first.name.empty() ? "" : first.name + " ") + first.label +
             "', is left out as a header");
    lines_.erase(lines_.begin());
  }

  void read_labels() {
    const bool numbers = parse<std::int64_t>(lines_.front().label).has_value();
    std::set<std::string> words;
    for (const Line& line : lines_) {
      const bool is_number = parse<std::int64_t>(line.label).has_value();
      if (!is_number && parse<double>(line.label)) {
        refuse_line(line.number, "has the label " + line.label + "; expected a whole number");
      }
      if (is_number != numbers) refuse_line(line.number, "mixes numbers and words as labels");
      words.insert(line.label);
    }
    const std::vector<std::string> classes =
        numbers ? std::vector<std::string>() : classes_of(words);
    for (const Line& line : lines_) {
      const std::int64_t label =
          numbers ? *parse<std::int64_t>(line.label) - images_.label_base
                  : std::ranges::lower_bound(classes, line.label) - classes.begin();
      if (label < 0 || label >= images_.classes) {
        refuse_line(line.number, "has the label " + line.label + ", which is number " +
                                     std::to_string(label) + " of " +
                                     std::to_string(images_.classes) +
                                     " classes counted from 0: state label_base, or --classes");
      }
      labels_.push_back(static_cast<std::int32_t>(label));
    }
  }

  /// The sorted classes whose numbers are the labels: the class folders of the training set, or the
  /// words themselves.
  std::vector<std::string> classes_of(const std::set<std::string>& words) {
    const bool chooses = images_.class_folders == "auto";
    fs::path folder(images_.directory);
    if (!folder.has_filename()) folder = folder.parent_path();
    folder = chooses ? folder.parent_path() / "train" : fs::path(images_.class_folders);
    std::vector<std::string> classes;
    try {
      classes = list_class_folders(folder.native(), std::numeric_limits<std::int32_t>::max());
    } catch (const ConfigError&) {
      if (!chooses) throw;
    }
    const auto is_class = [&](const Line& line) {
      return std::ranges::binary_search(classes, line.label);
    };
    if (chooses && std::ranges::none_of(lines_, is_class)) {
      add_note("the " + std::to_string(words.size()) + " words in '" + images_.labels +
               "' are numbered among themselves, in byte order; class_folders=DIR numbers them as "
               "the class folders of a training set");
      return {words.begin(), words.end()};
    }
    if (const auto other = std::ranges::find_if_not(lines_, is_class); other != lines_.end()) {
      refuse_line(other->number, "has the label '" + other->label +
                                     "', which is no class folder of '" + folder.native() + "'");
    }
    add_note("the words in '" + images_.labels + "' are numbered as the class folders of '" +
             folder.native() + "'");
    return classes;
  }

  void add_note(const std::string& text) { note_ += (note_.empty() ? "" : "; ") + text; }

  [[noreturn]] void refuse(const std::string& problem) const {
    throw ConfigError("the labels in '" + images_.labels + "': it " + problem +
                      "; expected a line `NAME LABEL` for each image, or `LABEL` for each in byte "
                      "order of the names; correct labels=FILE, or --data-dir");
  }
  [[noreturn]] void refuse_line(std::size_t number, const std::string& problem) const {
    refuse("has a line " + std::to_string(number) + " that " + problem);
  }

  const FlatImages& images_;
  const std::vector<std::string>& names_;
  std::vector<Line> lines_;
  std::vector<std::int32_t> labels_;  // one per line
  std::string note_;
};

}  // namespace

ImageFiles list_flat_images(const FlatImages& images) {
  const std::vector<std::string> names = list_image_names(images.directory);
  const LabelFile file(images, names);
  const std::vector<std::int32_t> labels = file.labels();
  std::vector<std::size_t> order(names.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return labels[i]; });
  ImageFiles sorted;
  sorted.note = file.note();
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
                             .classes = plan.classes,
                             .class_folders = options.text("class_folders")});
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
     "`NAME LABEL` or `NAME,LABEL`, or one label per image in byte order of names"},
    {"label_base", "0", "number of the first class in the file of labels"},
    {"class_folders", "auto",
     "folder of class folders that number the words in the file of labels; auto: train beside the "
     "images, if it has them"},
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
