// SPDX-License-Identifier: Apache-2.0
// Descriptors of memory and windows that several operators need.
#pragma once

#include "trainer/backends/cpu/onednn.h"
#include "trainer/graph.h"

namespace penstock::cpu {

/// The same dimensions; oneDNN chooses the layout.
inline onednn::Desc any(const onednn::Desc& desc, dnnl::memory::data_type type) {
  return {onednn::dims_of(desc), type, dnnl::memory::format_tag::any};
}
inline onednn::Desc any(const onednn::Desc& desc) { return any(desc, onednn::type_of(desc)); }

inline onednn::Dims strides(const Window& window) { return {window.stride, window.stride}; }
inline onednn::Dims kernel(const Window& window) { return {window.kernel_h, window.kernel_w}; }
inline onednn::Dims begin(const Window& window) { return {window.top, window.left}; }
inline onednn::Dims end(const Window& window) { return {window.bottom, window.right}; }

}  // namespace penstock::cpu
