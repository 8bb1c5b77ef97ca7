// SPDX-License-Identifier: Apache-2.0
// Writes SVG. Elements have classes only; figure.css has their rules, so that the surrounding page
// chooses light or dark. Coordinates are written with two decimals and are always finite.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "bench/document/document.h"

namespace penstock::report {

using document::FigureSize;

struct Point {
  double x = 0, y = 0;
};
struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};
enum class Anchor : unsigned char { start, middle, end };

class Svg {
 public:
  static constexpr double kText = 12;   ///< letter size in pixels
  static constexpr double kSmall = 11;  ///< letter size of class "small"

  /// `title` and `description` are for users who cannot see the figure, and for search.
  Svg(const FigureSize& size, std::string title, std::string description);

  double width() const noexcept { return size_.width; }

  /// `title` is the tooltip; empty: none. A box with negative sides is normalised.
  void box(Box box, std::string_view classes, std::string_view title = "");
  void line(Point from, Point to, std::string_view classes);
  void polyline(std::span<const Point> line, std::string_view classes) {
    points("polyline", line, classes);
  }
  void polygon(std::span<const Point> corners, std::string_view classes) {
    points("polygon", corners, classes);
  }
  void circle(Point centre, double radius, std::string_view classes, std::string_view title = "");
  /// Draws many small circles of the same class.
  void dots(std::span<const Point> centres, double radius, std::string_view classes);
  /// `at` is on the base line.
  void text(Point at, std::string_view text, std::string_view classes = "",
            Anchor anchor = Anchor::start);
  /// Wraps `text` into lines of at most `width` pixels; returns the base line after the last one.
  double paragraph(Point at, double width, std::string_view text, std::string_view classes = "");

  /// The complete element. Add nothing afterwards.
  std::string finish(double height) &&;

 private:
  void points(std::string_view element, std::span<const Point> points, std::string_view classes);
  void close(std::string_view element, std::string_view title);

  FigureSize size_;
  std::string title_, description_, body_;
};

/// A sentence in place of a figure without data.
std::string sentence_figure(const FigureSize& size, std::string_view title,
                            std::string_view sentence);

}  // namespace penstock::report
