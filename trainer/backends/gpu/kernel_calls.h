// SPDX-License-Identifier: Apache-2.0
// Penstock's own kernels, each as a plain struct of its arguments. A launch copies the call into
// the stream. Activations are [rows, channels] of `type`, where rows = N * H * W and `type` is f32,
// f16 or bf16. Sums and values per channel are f32.
//
// All kernels are deterministic: sums have a fixed order and there are no atomic additions.
// Pointers point to device memory (or to pinned memory if the comment says so) and are aligned to
// 16 bytes, except for slices of the weights' arenas (4 bytes). "null:" gives the meaning of a null
// pointer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "dataflow/batch.h"
#include "trainer/backend.h"
#include "trainer/loss_scale.h"
#include "trainer/optimizer.h"

namespace penstock::gpu {

/// Values that change from step to step. They are in device memory, so that recorded steps see new
/// values.
struct StepScalars {
  std::int64_t step = 0;   ///< number of the training step
  std::int32_t valid = 0;  ///< images of the batch that count
  float loss_scale = 1;    ///< gradients are multiplied by it until they are widened
  float good_steps = 0;    ///< together with loss_scale a LossScale
  Hyper hyper{};
};

/// A kernel takes the new values as arguments and stores them: nothing has to outlive the call.
struct SetStep {
  StepScalars* scalars = nullptr;
  std::int64_t step = 0;
  std::int32_t valid = 0;
  float loss_scale = 1;  ///< 0: unchanged, because it adapts itself
};
struct SetHyper {
  StepScalars* scalars = nullptr;
  Hyper hyper{};
};
/// Replaces the scalars' LossScale by its next_loss_scale().
struct AdaptLossScale {
  const std::int32_t* finite = nullptr;  ///< [kFiniteBlocks], from CheckFinite; null: all finite
  float count_to = 0;
  StepScalars* scalars = nullptr;
};

/// Converts pixels [N, H, W, channels], or [N, channels, H, W] if planar, of u8, f16, bf16 or f32
/// to [N, H, W, padded_channels] of `type`: pixel * factor[c] + offset[c]. Padding and images
/// beyond scalars->valid become 0. Channels after the fourth use the fourth's factor and offset.
/// With `blocks_width`, the even width of images of even height, `to` has their blocks of 2x2
/// pixels as pixels: [N, H / 2, W / 2, 2, 2, padded_channels].
struct Normalise {
  const void* pixels = nullptr;
  DType from = DType::u8;
  void* to = nullptr;
  DType type = DType::f32;
  std::int32_t images = 0;
  std::int64_t pixels_per_image = 0;
  std::int32_t channels = 0, padded_channels = 0;
  bool planar = false;
  std::int32_t blocks_width = 0;  ///< 0: pixels stay in their order
  float factor[4] = {1, 1, 1, 1}, offset[4] = {};
  const StepScalars* scalars = nullptr;
};

/// A 7x7 kernel for an image, [filters, 7, 7, channels], and the 4x4 kernel that computes the same
/// from blocks of 2x2 pixels, [filters, 4, 4, 2, 2, kBlockChannels]. It has a first row and column
/// more, which are 0. `to_blocks`: from the former to the latter; else back, without them. Channels
/// that `from` lacks become 0.
constexpr std::int32_t kStemKernel = 7, kBlockKernel = 4, kBlockChannels = 4;
struct ReorderStem {
  const void* from = nullptr;
  void* to = nullptr;
  DType type = DType::f32;
  std::int32_t filters = 0, channels = 0;
  bool to_blocks = true;
};

/// y = x * multiplier[c] + addend[c] + residual * residual_multiplier[c] + residual_addend[c],
/// then ReLU. y may be x or residual. The mask has one bit per element, bit (i % 8) of byte i / 8
/// in the order of memory: y > 0.
struct ScaleShift {
  const void* x = nullptr;
  const float* multiplier = nullptr;           ///< null: 1
  const float* addend = nullptr;               ///< null: 0
  const void* residual = nullptr;              ///< null: none
  const float* residual_multiplier = nullptr;  ///< null: 1
  const float* residual_addend = nullptr;      ///< null: 0
  void* y = nullptr;
  std::uint8_t* mask = nullptr;  ///< null: not wanted
  bool relu = false;
  DType type = DType::f32;
  std::int64_t rows = 0;
  std::int32_t channels = 0;
};

/// dx = (mask ? dy : 0), or where `mask` is null (y > 0 ? dy : 0); added to dx if `accumulate`.
/// dx may be dy.
struct ReluBackward {
  const void* dy = nullptr;
  const std::uint8_t* mask = nullptr;
  const void* y = nullptr;
  void* dx = nullptr;
  bool accumulate = false;
  DType type = DType::f32;
  std::int64_t count = 0;
};

/// The number of row blocks with separate sums, which a finishing kernel adds in order. The size of
/// `partial` and the grids of the kernels below depend on it.
std::int32_t sum_blocks(std::int64_t rows, std::int32_t channels);

/// partial[block][0][c] = the sum of x - x[0][c] over the block's rows, partial[block][1][c] = the
/// sum of its square. The first row replaces the mean, so that the squares do not cancel.
struct BatchNormSums {
  const void* x = nullptr;
  float* partial = nullptr;  ///< [sum_blocks][2][channels]
  DType type = DType::f32;
  std::int64_t rows = 0;
  std::int32_t channels = 0;
};
/// Turns sums into the mean, 1 / sqrt(variance + epsilon), the running statistics, and multiplier =
/// scale * inverse_deviation, addend = shift - mean * multiplier. The variance is the biased one,
/// clamped at 0; the running statistics take the unbiased one.
struct BatchNormFinish {
  const float* partial = nullptr;  ///< [blocks][2][channels]
  std::int32_t blocks = 0;
  const void* pivot = nullptr;  ///< the x whose first row was subtracted; null: none was
  DType type = DType::f32;      ///< the type of the pivot and of the short copies
  std::int64_t rows = 0;
  std::int32_t channels = 0;
  const float *scale = nullptr, *shift = nullptr;
  float epsilon = 1e-5F, momentum = 0.1F;
  float *running_mean = nullptr, *running_variance = nullptr;  ///< null: not updated
  float *mean = nullptr, *inverse_deviation = nullptr;
  float *multiplier = nullptr, *addend = nullptr;
  void *short_multiplier = nullptr, *short_addend = nullptr;  ///< the same in `type`; null: none
};
/// Computes multiplier and addend from the running statistics.
struct BatchNormFromRunning {
  const float *running_mean = nullptr, *running_variance = nullptr;
  const float *scale = nullptr, *shift = nullptr;
  float epsilon = 1e-5F;
  float *multiplier = nullptr, *addend = nullptr;
  std::int32_t channels = 0;
};

/// With g = mask ? dy : 0: partial[block][0][c] = the sum of g over the block's rows,
/// partial[block][1][c] = the sum of g * (x - mean[c]) * inverse_deviation[c].
struct BatchNormBackwardSums {
  const void* dy = nullptr;
  const std::uint8_t* mask = nullptr;  ///< null: all elements pass
  const void* x = nullptr;
  const float *mean = nullptr, *inverse_deviation = nullptr;
  void* masked = nullptr;    ///< receives g; may be dy; null: not wanted
  float* partial = nullptr;  ///< [sum_blocks][2][channels]
  DType type = DType::f32;
  std::int64_t rows = 0;
  std::int32_t channels = 0;
};
/// dshift and dscale are the two sums, and dx = dy_factor * g + x_factor * x + constant.
struct BatchNormBackwardFinish {
  const float* partial = nullptr;
  std::int32_t blocks = 0;
  std::int64_t rows = 0;
  std::int32_t channels = 0;
  const float *scale = nullptr, *mean = nullptr, *inverse_deviation = nullptr;
  float *dscale = nullptr, *dshift = nullptr;
  float *dy_factor = nullptr, *x_factor = nullptr, *constant = nullptr;
};
/// dx = dy_factor[c] * (mask ? dy : 0) + x_factor[c] * x + constant[c], added to dx if
/// `accumulate`. dx may be dy. x2 is the input of a second batch norm with the same dy; dx2 is
/// computed in the same way.
struct BatchNormBackwardApply {
  const void* dy = nullptr;
  const std::uint8_t* mask = nullptr;  ///< null: all elements pass
  const void* x = nullptr;
  const float *dy_factor = nullptr, *x_factor = nullptr, *constant = nullptr;
  void* dx = nullptr;
  bool accumulate = false;
  const void* x2 = nullptr;  ///< null: none
  const float *dy_factor2 = nullptr, *x_factor2 = nullptr, *constant2 = nullptr;
  void* dx2 = nullptr;
  DType type = DType::f32;
  std::int64_t rows = 0;
  std::int32_t channels = 0;
};

/// partial[block][c] = the sum of dy over the block's rows.
struct ColumnSums {
  const void* dy = nullptr;
  float* partial = nullptr;  ///< [sum_blocks][channels]
  DType type = DType::f32;
  std::int64_t rows = 0;
  std::int32_t channels = 0;
};
/// sums[c] = the sum of partial[block][c] over blocks.
struct ColumnFinish {
  const float* partial = nullptr;
  std::int32_t blocks = 0, channels = 0;
  float* sums = nullptr;
};

/// From [N, H, W, C] to [N, OH, OW, C], or the reverse in the backward pass.
struct PoolShape {
  std::int32_t images = 0, height = 0, width = 0, channels = 0, out_height = 0, out_width = 0;
  Window window{};
};
/// Padding is never the maximum. Of equal elements the first in the order H, W is the maximum.
/// `index` is its place in the window, row * kernel_w + column; a window has at most 256 places.
///
/// With `multiplier` and `addend` the kernel pools relu(x * multiplier[c] + addend[c]). The index
/// of windows that give 0 is then kNoPlace. These windows have at most 255 places, so kNoPlace is
/// never a real place, and the backward pass gives them no gradient.
constexpr std::uint8_t kNoPlace = 255;
struct MaxPoolForward {
  const void* x = nullptr;
  void* y = nullptr;
  std::uint8_t* index = nullptr;  ///< null: not wanted
  PoolShape shape{};
  DType type = DType::f32;
  const float *multiplier = nullptr, *addend = nullptr;  ///< null, both: pools x itself
};
struct MaxPoolBackward {
  const void* dy = nullptr;
  const std::uint8_t* index = nullptr;
  void* dx = nullptr;
  bool accumulate = false;
  PoolShape shape{};
  DType type = DType::f32;
};
struct AvgPoolForward {
  const void* x = nullptr;
  void* y = nullptr;
  bool count_padding = true;
  PoolShape shape{};
  DType type = DType::f32;
};
struct AvgPoolBackward {
  const void* dy = nullptr;
  void* dx = nullptr;
  bool count_padding = true, accumulate = false;
  PoolShape shape{};
  DType type = DType::f32;
};

/// to[r][to_first + c] = from[r][from_first + c] for c in [0, channels). `zero_rest`: sets the
/// other channels of `to` to 0. `accumulate`: adds instead.
struct CopyChannels {
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t rows = 0;
  std::int32_t channels = 0, from_channels = 0, from_first = 0, to_channels = 0, to_first = 0;
  bool zero_rest = false, accumulate = false;
  DType type = DType::f32;
};

/// y = x / (k + alpha / size * sum of x^2 over `size` neighbouring channels)^beta.
struct LrnForward {
  const void* x = nullptr;
  void* y = nullptr;
  Lrn lrn{};
  DType type = DType::f32;
  std::int64_t rows = 0;
  std::int32_t channels = 0;
};
struct LrnBackward {
  const void *x = nullptr, *dy = nullptr;
  void* dx = nullptr;
  bool accumulate = false;
  Lrn lrn{};
  DType type = DType::f32;
  std::int64_t rows = 0;
  std::int32_t channels = 0;
};

/// y = kept ? x / (1 - rate) : 0, as trainer/dropout.h defines it for scalars->step, in the forward
/// and the backward pass. The mask counts elements in the order N, C, H, W; x is laid out as N, H,
/// W, C.
struct DropoutApply {
  const void* x = nullptr;
  void* y = nullptr;
  bool accumulate = false;
  std::uint64_t seed = 0;
  std::int32_t node = 0;
  float rate = 0;
  const StepScalars* scalars = nullptr;
  DType type = DType::f32;
  std::int32_t images = 0, channels = 0;
  std::int64_t pixels_per_image = 0;
};

/// One row of logits per image. dlogits = (softmax - one hot) * loss_scale / valid, 0 in rows
/// beyond valid. above[n] counts the logits that are greater than the label's logit. Rows beyond
/// valid have loss 0 and above = classes. Rows whose label is no class have above = classes and a
/// loss that is NaN.
struct SoftmaxCrossEntropy {
  const void* logits = nullptr;
  const std::int32_t* labels = nullptr;
  void* dlogits = nullptr;  ///< null: not wanted
  float* loss = nullptr;    ///< [images]
  std::int32_t* above = nullptr;
  const StepScalars* scalars = nullptr;
  DType type = DType::f32;
  std::int32_t images = 0, classes = 0;
};
/// Writes the mean loss over valid rows, the counts of above < 1 and above < 5, valid, and whether
/// the loss is finite. Sets l2_loss to 0.
struct SummariseStep {
  const float* loss = nullptr;  ///< null: forward only; loss, top1 and top5 become 0
  const std::int32_t* above = nullptr;
  std::int32_t images = 0;
  const StepScalars* scalars = nullptr;
  StepResult* result = nullptr;  ///< pinned
};

/// to[i] = from[i], rounded to `type` (f16 or bf16).
struct NarrowWeights {
  const float* from = nullptr;
  void* to = nullptr;
  DType type = DType::f16;
  std::size_t count = 0;
};

/// A range of elements of the arenas, at most kChunkElements long.
struct ArenaChunk {
  std::size_t first = 0;
  std::uint32_t count = 0;
  bool flag = false;
};
constexpr std::uint32_t kChunkElements = 16384;

/// wide[i] = (flag ? narrow[i] : wide[i]) / loss_scale, chunk by chunk. `flag` marks gradients that
/// were computed in the 16-bit type.
struct WidenGradients {
  const void* narrow = nullptr;
  DType type = DType::f16;  ///< the type of narrow
  float* wide = nullptr;
  const ArenaChunk* chunks = nullptr;
  std::int32_t chunk_count = 0;
  const StepScalars* scalars = nullptr;
};

/// partial[block] = 1 if all elements of the block are finite, else 0. There are kFiniteBlocks
/// blocks of equal length.
constexpr std::int32_t kFiniteBlocks = 264;
struct CheckFinite {
  const float* values = nullptr;
  std::size_t count = 0;
  std::int32_t* partial = nullptr;  ///< [kFiniteBlocks]
};

/// squares[chunk][0] = the sum of squares of the weights, squares[chunk][1] = the sum of squares of
/// the gradients times `gradient_scale`, clipped.
struct SumSquares {
  const float *weights = nullptr, *gradients = nullptr;
  float gradient_scale = 1;
  const ArenaChunk* chunks = nullptr;
  std::int32_t chunk_count = 0;
  const StepScalars* scalars = nullptr;
  float* squares = nullptr;  ///< [chunk_count][2]
};
/// A tensor as a range of chunks.
struct ArenaTensor {
  std::int32_t first_chunk = 0, chunk_count = 0;
  bool scaled = false, decays = false;
};
/// trust[chunk] = the trust_ratio() of its tensor; 1 for tensors that are not scaled.
struct FindTrust {
  double eta = 0, epsilon = 0;
  const ArenaTensor* tensors = nullptr;
  std::int32_t tensor_count = 0;
  std::int32_t chunk_count = 0;    ///< the number of chunks of all tensors
  const float* squares = nullptr;  ///< the result of SumSquares
  const StepScalars* scalars = nullptr;
  float* trust = nullptr;  ///< [chunk_count]
};

/// One update of all weights by the rule, as trainer/optimizers defines it. `flag` of a chunk: its
/// weights decay. If an element of `finite` is 0, nothing changes. squares[chunk] = the sum of
/// squares of the weights before the update if they decay, else 0.
enum class UpdateRule : std::uint8_t { sgd, momentum, nesterov, rmsprop, adam, lars };
struct UpdateWeights {
  UpdateRule rule = UpdateRule::sgd;
  double constants[4] = {};  ///< momentum, lars: {momentum}; rmsprop: {decay, momentum, epsilon};
                             ///< adam: {beta1, beta2, epsilon}
  float* weights = nullptr;
  const float* gradients = nullptr;
  float* state[2] = {};
  float gradient_scale = 1;
  const ArenaChunk* chunks = nullptr;
  std::int32_t chunk_count = 0;
  const StepScalars* scalars = nullptr;
  const std::int32_t* finite = nullptr;  ///< [kFiniteBlocks]; null: not checked
  float* squares = nullptr;              ///< [chunk_count]
  const float* trust = nullptr;          ///< [chunk_count], for lars; other rules do not read it
};
/// result->l2_loss = weight_decay / 2 * the sum of squares. result->finite becomes false if an
/// element of `finite` is 0.
struct SummariseUpdate {
  const float* squares = nullptr;
  std::int32_t chunk_count = 0;
  const std::int32_t* finite = nullptr;  ///< null: not checked
  const StepScalars* scalars = nullptr;
  StepResult* result = nullptr;  ///< pinned
};

/// Adds elements [first, first + count) of all ranks' tensors in rank order. The sum goes to all
/// ranks, or to the root only.
constexpr std::int32_t kMaxRanks = 16;
struct SumSlices {
  void* tensors[kMaxRanks] = {};
  std::int32_t ranks = 0, root = -1;  ///< root -1: the sum goes to all
  std::size_t first = 0, count = 0;
  DType type = DType::f32;  ///< of the tensors; sums are f32 until they are stored
};

/// to[i] = from[i]; from is of `type` (f16 or bf16).
struct WidenSums {
  const void* from = nullptr;
  DType type = DType::f16;
  float* to = nullptr;
  std::size_t count = 0;
};

using KernelCall =
    std::variant<SetStep, SetHyper, Normalise, ReorderStem, ScaleShift, ReluBackward, BatchNormSums,
                 BatchNormFinish, BatchNormFromRunning, BatchNormBackwardSums,
                 BatchNormBackwardFinish, BatchNormBackwardApply, ColumnSums, ColumnFinish,
                 MaxPoolForward, MaxPoolBackward, AvgPoolForward, AvgPoolBackward, CopyChannels,
                 LrnForward, LrnBackward, DropoutApply, SoftmaxCrossEntropy, SummariseStep,
                 NarrowWeights, WidenGradients, CheckFinite, SumSquares, FindTrust, UpdateWeights,
                 SummariseUpdate, AdaptLossScale, SumSlices, WidenSums>;

}  // namespace penstock::gpu
