// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/flat_images.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/machine/input_file.h"

namespace penstock::datasets {
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

}  // namespace penstock::datasets
