// SPDX-License-Identifier: Apache-2.0
// One interface to oneDNN 2.6 (Debian 12) and 3.x (Debian 13). Version 2 wraps the arguments of a
// primitive in a descriptor of the operation; version 3 takes them directly, and some of them in
// another order. No other file depends on the version. All functions throw dnnl::error.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

namespace penstock::cpu::onednn {

using Attributes = dnnl::primitive_attr;
using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
using Engine = dnnl::engine;

#if DNNL_VERSION_MAJOR < 3
inline Dims dims_of(const Desc& desc) { return desc.dims(); }
inline dnnl::memory::data_type type_of(const Desc& desc) { return desc.data_type(); }
#else
inline Dims dims_of(const Desc& desc) { return desc.get_dims(); }
inline dnnl::memory::data_type type_of(const Desc& desc) { return desc.get_data_type(); }
#endif

/// Version 2 wants the shift of a batch norm for its gradients, too; version 3 refuses it.
inline constexpr bool kBackwardTakesShift = DNNL_VERSION_MAJOR < 3;

/// A ReLU behind the operation that has these attributes.
inline dnnl::post_ops relu_behind() {
  dnnl::post_ops operations;
#if DNNL_VERSION_MAJOR < 3
  operations.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
#else
  operations.append_eltwise(dnnl::algorithm::eltwise_relu, 0, 0);
#endif
  return operations;
}

/// A primitive whose arguments are the same in both versions: convolutions and inner products. An
/// empty descriptor of a bias means that there is none.
template <typename Primitive, typename... Arguments>
auto forward(const Engine& engine, const Attributes& attributes, const Arguments&... arguments) {
#if DNNL_VERSION_MAJOR < 3
  using Operation = typename Primitive::desc;
  return typename Primitive::primitive_desc(Operation(arguments...), attributes, engine);
#else
  return typename Primitive::primitive_desc(engine, arguments..., attributes);
#endif
}
/// `hint` describes the forward primitive.
template <typename Primitive, typename Hint, typename... Arguments>
auto backward(const Engine& engine, const Attributes& attributes, const Hint& hint,
              const Arguments&... arguments) {
#if DNNL_VERSION_MAJOR < 3
  using Operation = typename Primitive::desc;
  return typename Primitive::primitive_desc(Operation(arguments...), attributes, engine, hint);
#else
  return typename Primitive::primitive_desc(engine, arguments..., hint, attributes);
#endif
}

struct Pool {
  dnnl::algorithm algorithm;
  Dims strides, kernel, begin, end;  // begin and end: the padding
};
inline auto pool_forward(const Engine& engine, const Attributes& attributes, dnnl::prop_kind kind,
                         const Pool& pool, const Desc& from, const Desc& to) {
  return forward<dnnl::pooling_forward>(engine, attributes, kind, pool.algorithm, from, to,
                                        pool.strides, pool.kernel,
#if DNNL_VERSION_MAJOR >= 3
                                        Dims{0, 0},  // no dilation
#endif
                                        pool.begin, pool.end);
}
inline auto pool_backward(const Engine& engine, const Attributes& attributes,
                          const dnnl::pooling_forward::primitive_desc& hint, const Pool& pool,
                          const Desc& from, const Desc& to) {
  return backward<dnnl::pooling_backward>(engine, attributes, hint, pool.algorithm, from, to,
                                          pool.strides, pool.kernel,
#if DNNL_VERSION_MAJOR >= 3
                                          Dims{0, 0},
#endif
                                          pool.begin, pool.end);
}

/// Input, output and gradients have the layout `data`.
inline auto batch_norm_forward(const Engine& engine, const Attributes& attributes,
                               dnnl::prop_kind kind, const Desc& data, float epsilon,
                               dnnl::normalization_flags flags) {
  return forward<dnnl::batch_normalization_forward>(engine, attributes, kind, data,
#if DNNL_VERSION_MAJOR >= 3
                                                    data,
#endif
                                                    epsilon, flags);
}
inline auto batch_norm_backward(const Engine& engine, const Attributes& attributes,
                                const dnnl::batch_normalization_forward::primitive_desc& hint,
                                const Desc& data, float epsilon, dnnl::normalization_flags flags) {
  return backward<dnnl::batch_normalization_backward>(engine, attributes, hint,
                                                      dnnl::prop_kind::backward, data, data,
#if DNNL_VERSION_MAJOR >= 3
                                                      data,
#endif
                                                      epsilon, flags);
}

/// Local response normalisation over channels, all in the layout `data`.
struct Lrn {
  Dims::value_type size;
  float alpha, beta, k;
};
inline auto lrn_forward(const Engine& engine, const Attributes& attributes, dnnl::prop_kind kind,
                        const Lrn& lrn, const Desc& data) {
  return forward<dnnl::lrn_forward>(engine, attributes, kind, dnnl::algorithm::lrn_across_channels,
                                    data,
#if DNNL_VERSION_MAJOR >= 3
                                    data,
#endif
                                    lrn.size, lrn.alpha, lrn.beta, lrn.k);
}
inline auto lrn_backward(const Engine& engine, const Attributes& attributes,
                         const dnnl::lrn_forward::primitive_desc& hint, const Lrn& lrn,
                         const Desc& data) {
  return backward<dnnl::lrn_backward>(engine, attributes, hint,
                                      dnnl::algorithm::lrn_across_channels, data, data,
#if DNNL_VERSION_MAJOR >= 3
                                      data,
#endif
                                      lrn.size, lrn.alpha, lrn.beta, lrn.k);
}

inline auto concat(const Engine& engine, const Attributes& attributes, int dimension,
                   const std::vector<Desc>& parts) {
#if DNNL_VERSION_MAJOR < 3
  return dnnl::concat::primitive_desc(dimension, parts, engine, attributes);
#else
  return dnnl::concat::primitive_desc(engine, dimension, parts, attributes);
#endif
}

}  // namespace penstock::cpu::onednn
