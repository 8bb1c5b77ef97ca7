// SPDX-License-Identifier: Apache-2.0
#include "bench/report/figures/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "bench/report/figures/markup.h"
#include "penstock_figure_css.h"

namespace penstock::report {
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

/// In the order of Anchor.
constexpr std::string_view kAnchors[] = {"", "middle", "end"};

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
    body_ += fmt::format("{},{}", coordinate(point.x), coordinate(point.y));
  }
  body_ += '"' + attribute("class", classes);
  close(element, "");
}

void Svg::circle(Point centre, double radius, std::string_view classes, std::string_view title) {
  fmt::format_to(std::back_inserter(body_), R"(<circle cx="{}" cy="{}" r="{}"{})",
                 coordinate(centre.x), coordinate(centre.y), coordinate(radius),
                 attribute("class", classes));
  close("circle", title);
}

void Svg::dots(std::span<const Point> centres, double radius, std::string_view classes) {
  if (centres.empty()) return;
  body_ += fmt::format("<g{}>\n", attribute("class", classes));
  for (const Point& centre : centres) circle(centre, radius, "");
  body_ += "</g>\n";
}

void Svg::text(Point at, std::string_view text, std::string_view classes, Anchor anchor) {
  if (text.empty()) return;
  fmt::format_to(std::back_inserter(body_),
                 R"(<text x="{}" y="{}"{}{}>{}</text>)"
                 "\n",
                 coordinate(at.x), coordinate(at.y), attribute("class", classes),
                 attribute("text-anchor", kAnchors[static_cast<std::size_t>(anchor)]),
                 escaped(text));
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
