// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/webdataset.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/options.h"

namespace penstock::datasets {
namespace {

/// Limit for a label file. JSON in memory takes about twenty times its text.
constexpr std::uint64_t kMaxLabelBytes = 1U << 20;
constexpr std::uint64_t kMaxImageBytes = std::numeric_limits<std::uint32_t>::max();

/// True for "__meta__/x", "__index__": notes of the archive's writer.
bool is_note(std::string_view path) noexcept {
  const std::string_view first = path.substr(0, path.find('/'));
  return first.size() >= 4 && first.starts_with("__") && first.ends_with("__");
}

/// The beginning of foreign text, for messages.
std::string shown(std::string_view text) { return std::string(text.substr(0, 40)); }

/// The label, or a negative number if the text is no label.
std::int32_t parse_label(std::string_view text) noexcept {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return -1;
  text = text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
  return parse_number<std::int32_t>(text).value_or(-1);
}

std::int32_t parse_json_label(std::string_view text, const std::string& key) {
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object()) return -1;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return -1;
  const auto label = found->get<std::int64_t>();
  const bool fits = label >= 0 && label <= std::numeric_limits<std::int32_t>::max();
  return fits ? static_cast<std::int32_t>(label) : -1;
}

}  // namespace

WebDatasetName split_webdataset_name(std::string_view path) {
  if (is_note(path)) return {};
  const std::size_t slash = path.rfind('/');
  const std::size_t name = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = path.find('.', name);
  if (dot == std::string_view::npos || dot == name) return {};
  std::string kind(path.substr(dot + 1));
  for (char& c : kind) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return {path.substr(0, dot), std::move(kind)};
}

bool WebDatasetReader::next(WebDatasetSample& sample, std::vector<std::byte>* image) {
  image_ = image;
  while (next_group(sample)) {
    if (!sample.problem.empty() || image_rank_ < rules_.images.size() || has_label_) {
      judge(sample);
      return true;
    }
    if (passed_over_.empty()) passed_over_ = sample.kinds;
  }
  return false;
}

/// Reads consecutive files that have one key. False: there are no more.
bool WebDatasetReader::next_group(WebDatasetSample& sample) {
  sample = {};
  image_rank_ = rules_.images.size();
  has_label_ = false;
  if (!has_member_ && !ended_) advance();
  if (!failure_.empty()) {
    sample.begin = tar_.begin();
    sample.end = tar_.position();
    sample.problem = std::exchange(failure_, {});
    sample.is_last = true;
    return true;
  }
  if (!has_member_) return false;
  sample.begin = member_.begin;
  const std::string key(split_webdataset_name(member_.name).key);
  try {
    do {
      take(sample);
    } while (advance() && split_webdataset_name(member_.name).key == key);
  } catch (const DataError& error) {  // in the data of a file
    sample.problem = error.what();
    sample.is_last = ended_ = true;
    sample.end = tar_.position();
  }
  const bool whole = image_rank_ < rules_.images.size() && (has_label_ || rules_.label.empty());
  if (!failure_.empty() && !whole) {  // its missing files may be after the damage
    sample.problem = std::exchange(failure_, {});
    sample.is_last = true;
  }
  return true;
}

/// Moves to the next file that may be part of a sample. False: there is none; `failure_` then says
/// why if the tar is damaged.
bool WebDatasetReader::advance() {
  has_member_ = false;
  try {
    while (tar_.next(member_)) {
      if (split_webdataset_name(member_.name).key.empty()) {
        tar_.finish();
        continue;
      }
      return has_member_ = true;
    }
  } catch (const DataError& error) {
    failure_ = error.what();
  }
  ended_ = true;
  return false;
}

/// Adds `member_` to the sample. Throws DataError if its data are truncated.
void WebDatasetReader::take(WebDatasetSample& sample) {
  has_member_ = false;
  const std::string kind = split_webdataset_name(member_.name).kind;
  if (sample.kinds.size() < 200) {
    sample.kinds += (sample.kinds.empty() ? "" : ", ") + shown(kind);
  }
  const auto rank =
      static_cast<std::size_t>(std::ranges::find(rules_.images, kind) - rules_.images.begin());
  if (rank < rules_.images.size() && rank == image_rank_) {
    sample.problem = "it has two files of the kind " + shown(kind);
  }
  if (rank < image_rank_) {
    image_rank_ = rank;
    sample.image_at = member_.data;
    sample.image_bytes = member_.bytes;
    if (image_ != nullptr) {
      image_->resize(member_.bytes);
      tar_.read(*image_);
    }
  } else if (kind == rules_.label && !kind.empty()) {
    if (has_label_) sample.problem = "it has two files of the kind " + shown(kind);
    read_label(sample);
  }
  tar_.finish();
  sample.end = tar_.position();
}

void WebDatasetReader::read_label(WebDatasetSample& sample) {
  has_label_ = true;
  if (member_.bytes > kMaxLabelBytes) {
    sample.problem = "its label is a file of more than a mebibyte";
    return;
  }
  std::string text(member_.bytes, '\0');
  tar_.read(std::as_writable_bytes(std::span(text)));
  const bool is_json = rules_.label == "json" || rules_.label.ends_with(".json");
  sample.label = is_json ? parse_json_label(text, rules_.json_key) : parse_label(text);
  if (sample.label >= 0) return;
  sample.problem = is_json ? "its file of JSON has no whole number '" + rules_.json_key + "'"
                           : "its label is '" + shown(text) + "'; expected a whole number";
}

/// Says what is wrong with a group if the tar is intact.
void WebDatasetReader::judge(WebDatasetSample& sample) const {
  if (rules_.label.empty()) sample.label = 0;
  if (sample.problem.empty()) {
    if (image_rank_ == rules_.images.size()) {
      sample.problem = "it has no image; its files are " + sample.kinds;
    } else if (sample.label < 0) {
      sample.problem =
          "it has no label, a file ." + rules_.label + "; its files are " + sample.kinds;
    } else if (sample.image_bytes == 0) {
      sample.problem = "its image is empty";
    } else if (sample.image_bytes > kMaxImageBytes) {
      sample.problem = "its image has 4 GiB or more";
    }
  }
  if (!sample.problem.empty()) sample.label = -1;
}

}  // namespace penstock::datasets
