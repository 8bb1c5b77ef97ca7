// SPDX-License-Identifier: Apache-2.0
#include "bench/run/observe/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/document/terminal.h"
#include "bench/record/json_field.h"
#include "bench/record/report_text.h"
#include "dataflow/error.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int32_t kLongestBar = 10;

Json bound(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

/// "[##-]"; long queues are scaled down.
std::string bar(const Progress& progress) {
  const std::int32_t length = std::min(progress.queue_slots, kLongestBar);
  const std::int32_t filled = std::clamp(progress.queue_filled, 0, progress.queue_slots);
  const std::int32_t marks = (filled * length + progress.queue_slots / 2) / progress.queue_slots;
  return fmt::format("[{0:#<{1}}{0:-<{2}}]", "", marks, length - marks);
}

std::string rate_text(const statistics::Estimate& rate, const std::string& unit) {
  std::string text = format_fixed(rate.value, 1) + " " + unit;
  const double reach = 100 * rate.half_width() / rate.value;
  if (std::isfinite(reach)) text += fmt::format(" +-{} %", format_fixed(reach, 1));
  return text;
}

}  // namespace

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::lround(std::clamp(seconds, 0.0, 1e9)));
  if (whole < 100) return fmt::format("{} s", whole);
  return fmt::format("{} min {:02} s", whole / 60, whole % 60);
}

std::string to_line(const Progress& progress) {
  const statistics::Estimate& rate = progress.img_per_s;
  return Json{{"phase", progress.phase},
              {"steps_done", progress.steps_done},
              {"steps", progress.steps},
              {"img_per_s", rate.value},
              {"img_per_s_low", bound(rate.low)},
              {"img_per_s_high", bound(rate.high)},
              {"samples", rate.samples},
              {"unit", progress.unit},
              {"queue_filled", progress.queue_filled},
              {"queue_slots", progress.queue_slots},
              {"elapsed_s", progress.elapsed_s},
              {"left_s", progress.left_s}}
      .dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::optional<Progress> progress_from_line(std::string_view line) {
  const Json json = Json::parse(line, nullptr, false);
  try {
    const JsonField field(json);
    Progress progress;
    progress.phase = field.at("phase").text();
    progress.steps_done = field.at("steps_done").integer(0);
    progress.steps = field.at("steps").integer(0);
    progress.img_per_s.value = field.at("img_per_s").amount();
    progress.img_per_s.low = field.at("img_per_s_low").number_or_nan();
    progress.img_per_s.high = field.at("img_per_s_high").number_or_nan();
    progress.img_per_s.samples = static_cast<std::size_t>(field.at("samples").integer(0));
    if (const auto unit = json.find("unit"); unit != json.end()) {
      progress.unit = JsonField(*unit).text();
    }
    progress.queue_filled = field.at("queue_filled").count();
    progress.queue_slots = static_cast<std::int32_t>(field.at("queue_slots").integer(0, 1 << 20));
    progress.elapsed_s = field.at("elapsed_s").amount();
    progress.left_s = field.at("left_s").amount();
    return progress;
  } catch (const DataError&) {
    return std::nullopt;
  }
}

std::string progress_text(const Progress& progress, std::size_t width, bool colour) {
  constexpr std::string_view kGap = "  ";
  struct Piece {
    std::string text;
    std::string_view before = "", after = "";  // escape sequences, which have no width
  };
  std::vector<Piece> pieces{{progress.phase}};
  if (progress.steps_done > progress.steps) {
    pieces.front().text += fmt::format(" {} steps, extended", progress.steps_done);
  } else if (progress.steps > 0) {
    pieces.front().text += fmt::format(" {}/{} steps", progress.steps_done, progress.steps);
  }
  if (progress.img_per_s.samples > 0)
    pieces.push_back({rate_text(progress.img_per_s, progress.unit)});
  if (progress.queue_slots > 0) {
    const bool empty = progress.queue_filled == 0,
               full = progress.queue_filled >= progress.queue_slots;
    Piece queue{
        fmt::format("queue {} {}/{}", bar(progress), progress.queue_filled, progress.queue_slots)};
    if (colour && (empty || full)) {
      queue.before = empty ? document::kRed : document::kGreen;
      queue.after = document::kPlain;
    }
    pieces.push_back(std::move(queue));
  }
  if (progress.left_s > 0) pieces.push_back({duration_text(progress.left_s) + " left"});
  std::string text;
  std::size_t used = 0;
  for (const Piece& piece : pieces) {
    const std::size_t gap = used == 0 ? 0 : kGap.size();
    if (used + gap + piece.text.size() > width) break;
    text.append(kGap.substr(0, gap)).append(piece.before).append(piece.text).append(piece.after);
    used += gap + piece.text.size();
  }
  return text;
}

}  // namespace penstock
