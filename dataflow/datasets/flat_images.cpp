// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/flat_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/machine/input_file.h"
#include "dataflow/options.h"

namespace penstock::datasets {
namespace {

namespace fs = std::filesystem;

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
      refuse(fmt::format("has {} labels, the first of which is '{}', and the folder '{}' {} images",
                         lines_.size(), lines_.front().label, images_.directory, names_.size()));
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
        refuse(fmt::format("has no line for the image '{}'; its first line names '{}'", name,
                           lines_.front().name));
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
    const auto is_number = [](const Line& line) {
      return parse_number<double>(line.label).has_value();
    };
    bool names_columns = !is_number(first) && is_number(lines_[1]);
    if (!first.name.empty() && !is_number(first)) {
      const bool is_image = std::ranges::any_of(names_, [&](const std::string& name) {
        return name == first.name || without_extension(name) == first.name;
      });
      const bool is_label = std::ranges::count(lines_, first.label, &Line::label) > 1;
      names_columns = !is_image && !is_label && fs::path(first.name).extension().empty();
    }
    if (!names_columns) return;
    add_note(fmt::format("line {} of '{}', '{}{}', is left out as a header", first.number,
                         images_.labels, first.name.empty() ? "" : first.name + " ", first.label));
    lines_.erase(lines_.begin());
  }

  void read_labels() {
    const bool numbers = parse_number<std::int64_t>(lines_.front().label).has_value();
    std::set<std::string> words;
    for (const Line& line : lines_) {
      const bool is_number = parse_number<std::int64_t>(line.label).has_value();
      if (!is_number && parse_number<double>(line.label)) {
        refuse_line(line.number, "has the label " + line.label + "; expected a whole number");
      }
      if (is_number != numbers) refuse_line(line.number, "mixes numbers and words as labels");
      words.insert(line.label);
    }
    const std::vector<std::string> classes =
        numbers ? std::vector<std::string>() : classes_of(words);
    for (const Line& line : lines_) {
      const std::int64_t label =
          numbers ? *parse_number<std::int64_t>(line.label) - images_.label_base
                  : std::ranges::lower_bound(classes, line.label) - classes.begin();
      if (label < 0 || label >= images_.classes) {
        refuse_line(line.number, fmt::format("has the label {}, which is number {} of {} classes "
                                             "counted from 0: state label_base, or --classes",
                                             line.label, label, images_.classes));
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
      add_note(
          fmt::format("the {} words in '{}' are numbered among themselves, in byte order; "
                      "class_folders=DIR numbers them as the class folders of a training set",
                      words.size(), images_.labels));
      return {words.begin(), words.end()};
    }
    if (const auto other = std::ranges::find_if_not(lines_, is_class); other != lines_.end()) {
      refuse_line(other->number, fmt::format("has the label '{}', which is no class folder of '{}'",
                                             other->label, folder.native()));
    }
    add_note(fmt::format("the words in '{}' are numbered as the class folders of '{}'",
                         images_.labels, folder.native()));
    return classes;
  }

  void add_note(const std::string& text) { note_ += (note_.empty() ? "" : "; ") + text; }

  [[noreturn]] void refuse(const std::string& problem) const {
    throw ConfigError(
        "the labels in '{}': it {}; expected a line `NAME LABEL` for each image, or `LABEL` for "
        "each in byte order of the names; correct labels=FILE, or --data-dir",
        images_.labels, problem);
  }
  [[noreturn]] void refuse_line(std::size_t number, const std::string& problem) const {
    refuse(fmt::format("has a line {} that {}", number, problem));
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

}  // namespace penstock::datasets
