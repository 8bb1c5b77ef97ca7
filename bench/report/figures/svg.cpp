// SPDX-License-Identifier: Apache-2.0
#include "bench/report/figures/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <utility>

#include "penstock_figure_css.h"

namespace penstock::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::string_view kEllipsis = "\xE2\x80\xA6";

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

struct Character {
  std::size_t bytes = 1;
  std::uint32_t code = 0;
  bool valid = false;
};

/// The first character of `text`, which is not empty (RFC 3629).
Character first_of(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead < 0x80) return {1, lead, true};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {};
  std::uint32_t code = lead & (0xFFU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if (!is_continuation(text[i])) return {};
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3FU);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kLeast[bytes] || code > 0x10FFFF || surrogate) return {};
  return {bytes, code, true};
}

bool is_xml(std::uint32_t code) {
  if (code < 0x20) return code == '\t' || code == '\n' || code == '\r';
  return code != 0xFFFE && code != 0xFFFF && !(code >= 0x7F && code < 0xA0);
}

/// Em widths by kind of letter, close to those of DejaVu Sans, which is wider than most.
double em_width(char c) {
  if (std::string_view("il.,:;'|!j").find(c) != std::string_view::npos) return 0.33;
  if (std::string_view(" frt()[]-/").find(c) != std::string_view::npos) return 0.40;
  if (std::string_view("mwMW@%").find(c) != std::string_view::npos) return 0.95;
  if (c >= 'A' && c <= 'Z') return 0.70;
  return 0.63;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const Character character = first_of(text);
    const std::string_view bytes = text.substr(0, character.bytes);
    if (!character.valid || !is_xml(character.code)) {
      result += kReplacement;
    } else if (bytes == "&") {
      result += "&amp;";
    } else if (bytes == "<") {
      result += "&lt;";
    } else if (bytes == ">") {
      result += "&gt;";
    } else if (bytes == "\"") {
      result += "&quot;";
    } else if (bytes == "'") {
      result += "&#39;";
    } else {
      result += bytes;
    }
    text.remove_prefix(character.bytes);
  }
  return result;
}

std::size_t length_of(std::string_view text) {
  std::size_t length = 0;
  for (const char c : text) length += is_continuation(c) ? 0 : 1;
  return length;
}

double text_width(std::string_view text, double size) {
  double ems = 0;
  for (const char c : text) ems += is_continuation(c) ? 0 : em_width(c);
  return ems * size;
}

std::string shortened(std::string_view text, double width, double size) {
  if (text_width(text, size) <= width) return std::string(text);
  while (!text.empty() && text_width(text, size) + size > width) {
    while (text.size() > 1 && is_continuation(text.back())) text.remove_suffix(1);
    text.remove_suffix(1);
  }
  return std::string(text) + std::string(kEllipsis);
}

namespace {

constexpr double kFarAway = 1e5;
constexpr double kLine = 16;

/// A coordinate: finite, two decimals, without trailing zeros.
std::string coordinate(double value) {
  if (std::isnan(value)) value = 0;
  std::string text = fmt::format("{:.2f}", std::clamp(value, -kFarAway, kFarAway));
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string attribute(std::string_view name, std::string_view value) {
  return value.empty() ? "" : fmt::format(R"( {}="{}")", name, escaped(value));
}

constexpr std::string_view anchor_name(Anchor anchor) {
  if (anchor == Anchor::start) return "";
  return anchor == Anchor::middle ? "middle" : "end";
}

}  // namespace

Svg::Svg(const FigureSize& size, std::string title, std::string description)
    : size_(size), title_(std::move(title)), description_(std::move(description)) {}

void Svg::close(std::string_view element, std::string_view title) {
  if (title.empty()) {
    body_ += "/>\n";
  } else {
    fmt::format_to(std::back_inserter(body_), "><title>{}</title></{}>\n", escaped(title), element);
  }
}

void Svg::box(Box box, std::string_view classes, std::string_view title) {
  if (box.width < 0) box = {box.x + box.width, box.y, -box.width, box.height};
  if (box.height < 0) box = {box.x, box.y + box.height, box.width, -box.height};
  fmt::format_to(std::back_inserter(body_), R"(<rect x="{}" y="{}" width="{}" height="{}"{})",
                 coordinate(box.x), coordinate(box.y), coordinate(box.width),
                 coordinate(box.height), attribute("class", classes));
  close("rect", title);
}

void Svg::line(Point from, Point to, std::string_view classes) {
  fmt::format_to(std::back_inserter(body_), R"(<line x1="{}" y1="{}" x2="{}" y2="{}"{})",
                 coordinate(from.x), coordinate(from.y), coordinate(to.x), coordinate(to.y),
                 attribute("class", classes));
  close("line", "");
}

void Svg::points(std::string_view element, std::span<const Point> points,
                 std::string_view classes) {
  if (points.empty()) return;
  fmt::format_to(std::back_inserter(body_), R"(<{} points=")", element);
  for (const Point& point : points) {
    if (&point != points.data()) body_ += ' ';
    body_ += coordinate(point.x) + ',' + coordinate(point.y);
  }
  body_ += '"' + attribute("class", classes);
  close(element, "");
}

void Svg::polyline(std::span<const Point> line, std::string_view classes) {
  points("polyline", line, classes);
}

void Svg::polygon(std::span<const Point> corners, std::string_view classes) {
  points("polygon", corners, classes);
}

void Svg::circle(Point centre, double radius, std::string_view classes, std::string_view title) {
  fmt::format_to(std::back_inserter(body_), R"(<circle cx="{}" cy="{}" r="{}"{})",
                 coordinate(centre.x), coordinate(centre.y), coordinate(radius),
                 attribute("class", classes));
  close("circle", title);
}

void Svg::dots(std::span<const Point> centres, double radius, std::string_view classes) {
  if (centres.empty()) return;
  body_ += "<g" + attribute("class", classes) + ">\n";
  for (const Point& centre : centres) circle(centre, radius, "");
  body_ += "</g>\n";
}

void Svg::text(Point at, std::string_view text, std::string_view classes, Anchor anchor) {
  if (text.empty()) return;
  fmt::format_to(std::back_inserter(body_),
                 R"(<text x="{}" y="{}"{}{}>{}</text>)"
                 "\n",
                 coordinate(at.x), coordinate(at.y), attribute("class", classes),
                 attribute("text-anchor", anchor_name(anchor)), escaped(text));
}

double Svg::paragraph(Point at, double width, std::string_view text, std::string_view classes) {
  std::string line;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string longer = line + (line.empty() ? "" : " ") + std::string(text.substr(0, end));
    if (!line.empty() && text_width(longer, kText) > width) {
      this->text(at, line, classes);
      at.y += kLine;
      line = shortened(text.substr(0, end), width, kText);
    } else {
      line = shortened(longer, width, kText);
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  this->text(at, line, classes);
  return at.y + kLine;
}

std::string Svg::finish(double height) && {
  std::string space, ground;
  if (size_.standalone) {
    space = R"( xmlns="http://www.w3.org/2000/svg")";
    ground =
        fmt::format("<style>\n{}</style>\n<rect width=\"100%\" height=\"100%\" class=\"paper\"/>\n",
                    kFigureCss);
  }
  const std::string across = coordinate(size_.width), down = coordinate(std::ceil(height));
  return fmt::format(
      R"(<svg{0} class="ps" role="img" viewBox="0 0 {1} {2}" width="{1}" height="{2}">)"
      "\n<title>{3}</title>\n<desc>{4}</desc>\n{5}{6}</svg>\n",
      space, across, down, escaped(title_), escaped(description_), ground, body_);
}

std::string sentence_figure(const FigureSize& size, std::string_view title,
                            std::string_view sentence) {
  Svg svg(size, std::string(title), std::string(sentence));
  const double below = svg.paragraph({0, kLine}, size.width, sentence, "soft");
  return std::move(svg).finish(below);
}

}  // namespace penstock::report
