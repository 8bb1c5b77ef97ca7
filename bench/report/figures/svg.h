// SPDX-License-Identifier: Apache-2.0
// Writes SVG. Looks come from classes alone, whose rules are in figure_style.h, so that a page that
// a figure is put into decides about light and dark. Numbers are written with two decimals and are
// finite, whatever comes in.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace penstock {

/// How a figure is wanted.
struct FigureSize {
  double width = 720;       ///< pixels; letters have the same size at any width
  bool standalone = false;  ///< a file of its own, which brings its own style
};

struct Point {
  double x = 0, y = 0;
};
struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};
enum class Anchor : unsigned char { start, middle, end };

class Svg {
 public:
  static constexpr double kText = 12;   ///< pixels of usual letters
  static constexpr double kSmall = 11;  ///< of class "small"

  /// `title` and `description` are for those who cannot see the figure, and for search.
  Svg(const FigureSize& size, std::string title, std::string description);

  double width() const noexcept { return size_.width; }

  /// `title` appears where a pointer rests; empty: none. Boxes with negative sides are turned
  /// round.
  void box(Box box, std::string_view classes, std::string_view title = "");
  void line(Point from, Point to, std::string_view classes);
  void polyline(std::span<const Point> points, std::string_view classes);
  void polygon(std::span<const Point> points, std::string_view classes);
  void circle(Point centre, double radius, std::string_view classes, std::string_view title = "");
  /// Many small ones of the same looks.
  void dots(std::span<const Point> centres, double radius, std::string_view classes);
  /// `at`: of the base line.
  void text(Point at, std::string_view text, std::string_view classes = "",
            Anchor anchor = Anchor::start);
  /// Words of `text` over lines of at most `width` pixels; returns the base line after the last.
  double paragraph(Point at, double width, std::string_view text, std::string_view classes = "");

  /// The whole element. Nothing can be added afterwards.
  std::string finish(double height) &&;

 private:
  void points(std::string_view element, std::span<const Point> points, std::string_view classes);
  void close(std::string_view element, std::string_view title);

  FigureSize size_;
  std::string title_, description_, body_;
};

/// A figure that has nothing to show says why.
std::string sentence_figure(const FigureSize& size, std::string_view title,
                            std::string_view sentence);

}  // namespace penstock
