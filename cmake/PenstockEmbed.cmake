# penstock_embed(NAME FILE): gives sources the text of FILE, so that the program needs no file beside it.
# For figures/figure.css, the header penstock_figure_css.h has `inline constexpr std::string_view NAME`.
function(penstock_embed name file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} text)
  get_filename_component(base ${file} NAME)
  string(MAKE_C_IDENTIFIER ${base} base)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/penstock_${base}.h CONTENT [[// Generated from @file@.
#pragma once
#include <string_view>
inline constexpr std::string_view @name@ = R"embedded(@text@)embedded";
]] @ONLY)
endfunction()
