// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/jpeg/baseline.h"

#include <cstdio>
// jpeglib.h needs size_t and FILE from the header above.
#include <jpeglib.h>

#include <algorithm>

namespace penstock::jpeg {
namespace {

HuffmanSpec spec_of(const JHUFF_TBL& table) {
  HuffmanSpec spec;
  std::copy(std::begin(table.bits) + 1, std::end(table.bits), spec.counts.begin() + 1);
  std::copy(std::begin(table.huffval), std::end(table.huffval), spec.values.begin());
  return spec;
}

bool is_baseline(const jpeg_decompress_struct& headers) {
  return headers.progressive_mode == 0 && headers.arith_code == 0 && headers.data_precision == 8 &&
         headers.Ss == 0 && headers.Se == DCTSIZE2 - 1 && headers.Ah == 0 && headers.Al == 0 &&
         headers.comps_in_scan == headers.num_components && headers.CCIR601_sampling == 0;
}

}  // namespace

bool read_frame(const jpeg_decompress_struct& headers, Frame& frame) {
  const bool grey = headers.num_components == 1 && headers.jpeg_color_space == JCS_GRAYSCALE;
  const bool colour = headers.num_components == 3 && headers.jpeg_color_space == JCS_YCbCr;
  if (!is_baseline(headers) || (!grey && !colour)) return false;
  for (int i = 0; i < headers.num_components; ++i) {
    const jpeg_component_info& component = headers.comp_info[i];
    if (headers.cur_comp_info[i] != &component) return false;
    if (i > 0 && (component.h_samp_factor != 1 || component.v_samp_factor != 1)) return false;
    // libjpeg checks these numbers only when it decodes.
    const auto exists = [](int table, int count) { return table >= 0 && table < count; };
    if (!exists(component.quant_tbl_no, NUM_QUANT_TBLS) ||
        !exists(component.dc_tbl_no, NUM_HUFF_TBLS) ||
        !exists(component.ac_tbl_no, NUM_HUFF_TBLS)) {
      return false;
    }
    const JQUANT_TBL* const steps = headers.quant_tbl_ptrs[component.quant_tbl_no];
    const JHUFF_TBL* const dc = headers.dc_huff_tbl_ptrs[component.dc_tbl_no];
    const JHUFF_TBL* const ac = headers.ac_huff_tbl_ptrs[component.ac_tbl_no];
    if (steps == nullptr || dc == nullptr || ac == nullptr) return false;
    const auto at = static_cast<std::size_t>(i);
    frame.quantisation[at] = steps->quantval;
    frame.dc[at] = spec_of(*dc);
    frame.ac[at] = spec_of(*ac);
  }
  frame.width = static_cast<std::int32_t>(headers.image_width);
  frame.height = static_cast<std::int32_t>(headers.image_height);
  frame.components = headers.num_components;
  // A scan of one component has its blocks in rows, whatever its sampling.
  frame.horizontal = grey ? 1 : headers.comp_info[0].h_samp_factor;
  frame.vertical = grey ? 1 : headers.comp_info[0].v_samp_factor;
  frame.restart_interval = headers.restart_interval;
  frame.data = std::as_bytes(std::span(headers.src->next_input_byte, headers.src->bytes_in_buffer));
  return true;
}

}  // namespace penstock::jpeg
