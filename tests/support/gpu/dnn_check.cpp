// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <set>
#include <stdexcept>
#include <vector>

#include "tests/support/gpu/accesses.h"
#include "tests/support/gpu/dnn_interpreter.h"

namespace penstock::gpu {
namespace {

class Checker {
 public:
  explicit Checker(const DnnGraph& graph) : graph_(graph) {}

  void run() {
    for (const DnnTensor& tensor : graph_.tensors) {
      require(
          tensor.dtype == DType::f16 || tensor.dtype == DType::bf16 || tensor.dtype == DType::f32,
          "a tensor is neither f16, bf16 nor f32");
      for (const std::int64_t extent : tensor.shape) require(extent > 0, "an extent is not > 0");
    }
    require(!graph_.operations.empty(), "there are no operations");
    for (; operation_ < graph_.operations.size(); ++operation_) {
      const DnnOperation& operation = graph_.operations[operation_];
      const Operands of = operands_of(operation);
      check_reads(of.reads);
      check_writes(of.writes);
      std::visit([this](const auto& op) { check(op); }, operation);
    }
  }

 private:
  void check(const DnnConvolution& op) const {
    check_window(op.window, op.x, op.w, op.y);
    require(op.x != op.y && op.w != op.y, "a convolution reads what it writes");
  }
  void check(const DnnConvolutionBackwardData& op) const {
    check_window(op.window, op.dx, op.w, op.dy);
    require(op.dy != op.dx && op.w != op.dx, "a convolution reads what it writes");
  }
  void check(const DnnConvolutionBackwardFilter& op) const {
    check_window(op.window, op.x, op.dw, op.dy);
  }
  void check(const DnnPointwise& op) const {
    require((op.mode == PointwiseMode::relu) == (op.b == kNoTensor),
            "relu takes one operand, the other modes take two");
    if (op.b != kNoTensor) {
      const bool equal = graph_.tensor(op.b).shape == graph_.tensor(op.x).shape;
      require(equal || (op.mode != PointwiseMode::relu_backward && per_channel(op.b, op.x)),
              "the second operand has neither the first one's shape nor a value per channel");
    }
    require(graph_.tensor(op.x).shape == graph_.tensor(op.y).shape,
            "the result has another shape than the first operand");
  }
  void check(const DnnGenerateStatistics& op) const {
    check_per_channel({op.sum, op.square_sum}, op.x);
  }
  void check(const DnnBatchNormBackwardWeights& op) const {
    require(graph_.tensor(op.x).shape == graph_.tensor(op.dy).shape, "x and dy differ in shape");
    check_per_channel({op.mean, op.inverse_deviation, op.scale, op.dscale, op.dshift, op.dy_factor,
                       op.x_factor, op.constant},
                      op.x);
  }

  void check_window(const DnnWindow& window, DnnTensorId x_id, DnnTensorId w_id,
                    DnnTensorId y_id) const {
    const DnnTensor &x = graph_.tensor(x_id), &w = graph_.tensor(w_id), &y = graph_.tensor(y_id);
    require(x.shape[0] == y.shape[0], "the images' numbers differ");
    require(w.shape[0] == y.shape[1], "the weights have another number of output channels");
    require(x.shape[1] % w.shape[1] == 0, "the input's channels are no multiple of the weights'");
    require(y.shape[1] % (x.shape[1] / w.shape[1]) == 0,
            "the output's channels are no multiple of the groups");
    for (std::size_t i = 0; i < 2; ++i) {
      require(window.stride[i] > 0 && window.before[i] >= 0 && window.after[i] >= 0,
              "a stride is not > 0, or a padding not >= 0");
      const std::int64_t room = x.shape[2 + i] + window.before[i] + window.after[i];
      require(room >= w.shape[2 + i], "a window is larger than the padded input");
      require((room - w.shape[2 + i]) / window.stride[i] + 1 == y.shape[2 + i],
              "the output's extent is not the one that the window gives");
    }
  }
  bool per_channel(DnnTensorId id, DnnTensorId of) const {
    return graph_.tensor(id).shape == std::array<std::int64_t, 4>{1, channels(of), 1, 1};
  }
  void check_per_channel(const std::vector<DnnTensorId>& ids, DnnTensorId of) const {
    for (const DnnTensorId id : ids) {
      require(per_channel(id, of), "a tensor with one value per channel has another shape");
      require(graph_.tensor(id).dtype == DType::f32, "a tensor of batch norm's sums is not f32");
    }
  }
  std::int64_t channels(DnnTensorId id) const { return graph_.tensor(id).shape[1]; }

  void check_reads(const std::vector<DnnTensorId>& ids) const {
    for (const DnnTensorId id : ids) {
      check_range(id);
      require(!graph_.tensor(id).is_virtual || written_.contains(id),
              "a virtual tensor is read before it is written");
    }
  }
  void check_writes(const std::vector<DnnTensorId>& ids) {
    for (const DnnTensorId id : ids) {
      check_range(id);
      require(written_.insert(id).second, "a tensor is written twice");
    }
  }
  void check_range(DnnTensorId id) const {
    require(id >= 0 && static_cast<std::size_t>(id) < graph_.tensors.size(),
            "an operand is missing, or no tensor of the graph");
  }
  void require(bool holds, const char* otherwise) const {
    if (holds) return;
    throw std::invalid_argument(
        fmt::format("cannot compute the graph \"{}\": in its operation {}, {}; build another graph",
                    to_text(graph_), operation_, otherwise));
  }

  const DnnGraph& graph_;
  std::size_t operation_ = 0;
  std::set<DnnTensorId> written_;
};

}  // namespace

void check(const DnnGraph& graph) { Checker(graph).run(); }

}  // namespace penstock::gpu
