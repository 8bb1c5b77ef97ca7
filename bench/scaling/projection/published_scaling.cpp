// SPDX-License-Identifier: Apache-2.0
#include "bench/scaling/projection/published_scaling.h"

#include <array>

namespace penstock::scaling {
namespace {

constexpr bool kFitted = true, kPredicted = false;
constexpr double kResnet50 = 102.2, kResnet101 = 178, kResnet152 = 240.8, kInception3 = 95,
                 kVgg16 = 553, kAlexnet = 249.5;  // MB of gradients, f32

// KungFu's repository, benchmarks/system: 16 V100 in two DGX-1, 100 Gbit/s, over the global batch.
// Read off the figure, within 20 img/s.

constexpr std::array kKungfu0{
    PublishedPoint{16, 16, 1360, kFitted},    PublishedPoint{16, 32, 2766, kPredicted},
    PublishedPoint{16, 64, 4432, kPredicted}, PublishedPoint{16, 128, 5247, kPredicted},
    PublishedPoint{16, 256, 5503, kFitted},
};
constexpr std::array kKungfu1{
    PublishedPoint{16, 16, 687, kFitted},     PublishedPoint{16, 32, 1311, kPredicted},
    PublishedPoint{16, 64, 2271, kPredicted}, PublishedPoint{16, 128, 3790, kPredicted},
    PublishedPoint{16, 256, 5519, kFitted},
};
constexpr std::array kKungfu2{
    PublishedPoint{16, 16, 2079, kFitted},    PublishedPoint{16, 32, 3600, kPredicted},
    PublishedPoint{16, 64, 4847, kPredicted}, PublishedPoint{16, 128, 5390, kPredicted},
    PublishedPoint{16, 256, 5614, kFitted},
};
constexpr std::array kKungfu3{
    PublishedPoint{16, 16, 800, kFitted},     PublishedPoint{16, 32, 1600, kPredicted},
    PublishedPoint{16, 64, 2863, kPredicted}, PublishedPoint{16, 128, 4398, kPredicted},
    PublishedPoint{16, 256, 5279, kFitted},
};
constexpr std::array kKungfu4{
    PublishedPoint{16, 16, 321, kFitted},     PublishedPoint{16, 32, 640, kPredicted},
    PublishedPoint{16, 64, 1119, kPredicted}, PublishedPoint{16, 128, 2095, kPredicted},
    PublishedPoint{16, 256, 3327, kFitted},
};
constexpr std::array kKungfu5{
    PublishedPoint{16, 16, 160, kFitted},    PublishedPoint{16, 32, 337, kPredicted},
    PublishedPoint{16, 64, 671, kPredicted}, PublishedPoint{16, 128, 1247, kPredicted},
    PublishedPoint{16, 256, 2192, kFitted},
};
constexpr std::array kKungfu6{
    PublishedPoint{16, 16, 384, kFitted},     PublishedPoint{16, 32, 753, kPredicted},
    PublishedPoint{16, 64, 1487, kPredicted}, PublishedPoint{16, 128, 2734, kPredicted},
    PublishedPoint{16, 256, 3392, kFitted},
};
constexpr std::array kKungfu7{
    PublishedPoint{16, 16, 95, kFitted},     PublishedPoint{16, 32, 208, kPredicted},
    PublishedPoint{16, 64, 495, kPredicted}, PublishedPoint{16, 128, 863, kPredicted},
    PublishedPoint{16, 256, 1600, kFitted},
};
constexpr std::array kKungfu8{
    PublishedPoint{16, 16, 1534, kFitted},    PublishedPoint{16, 32, 2719, kPredicted},
    PublishedPoint{16, 64, 4798, kPredicted}, PublishedPoint{16, 128, 6766, kPredicted},
    PublishedPoint{16, 256, 7421, kFitted},
};
constexpr std::array kKungfu9{
    PublishedPoint{16, 16, 737, kFitted},     PublishedPoint{16, 32, 1424, kPredicted},
    PublishedPoint{16, 64, 2687, kPredicted}, PublishedPoint{16, 128, 4640, kPredicted},
    PublishedPoint{16, 256, 7406, kFitted},
};
constexpr std::array kKungfu10{
    PublishedPoint{16, 16, 2240, kFitted},    PublishedPoint{16, 32, 3695, kPredicted},
    PublishedPoint{16, 64, 5806, kPredicted}, PublishedPoint{16, 128, 7006, kPredicted},
    PublishedPoint{16, 256, 7550, kFitted},
};
constexpr std::array kKungfu11{
    PublishedPoint{16, 16, 895, kFitted},     PublishedPoint{16, 32, 1711, kPredicted},
    PublishedPoint{16, 64, 3119, kPredicted}, PublishedPoint{16, 128, 5198, kPredicted},
    PublishedPoint{16, 256, 6687, kFitted},
};

// TensorFlow's performance pages, May 2017: DGX-1 with eight P100.

constexpr std::array kDgx0{
    PublishedPoint{1, 64, 219, kFitted},
    PublishedPoint{2, 64, 422, kFitted},
    PublishedPoint{4, 64, 852, kFitted},
    PublishedPoint{8, 64, 1734, kPredicted},
};
constexpr std::array kDgx1{
    PublishedPoint{1, 32, 195, kFitted},
    PublishedPoint{2, 32, 368, kFitted},
    PublishedPoint{4, 32, 768, kFitted},
    PublishedPoint{8, 32, 1485, kPredicted},
};
constexpr std::array kDgx2{
    PublishedPoint{1, 64, 218, kFitted},
    PublishedPoint{2, 64, 425, kFitted},
    PublishedPoint{4, 64, 853, kFitted},
    PublishedPoint{8, 64, 1630, kPredicted},
};
constexpr std::array kDgx3{
    PublishedPoint{1, 64, 142, kFitted},
    PublishedPoint{2, 64, 284, kFitted},
    PublishedPoint{4, 64, 569, kFitted},
    PublishedPoint{8, 64, 1131, kPredicted},
};
constexpr std::array kDgx4{
    PublishedPoint{1, 64, 154, kFitted},
    PublishedPoint{2, 64, 295, kFitted},
    PublishedPoint{4, 64, 584, kFitted},
    PublishedPoint{8, 64, 1081, kPredicted},
};
constexpr std::array kDgx5{
    PublishedPoint{1, 512, 2987, kFitted},
    PublishedPoint{2, 512, 5658, kFitted},
    PublishedPoint{4, 512, 10509, kFitted},
    PublishedPoint{8, 512, 17822, kPredicted},
};

// The same pages: p2.8xlarge of EC2 with K80, distributed_replicated, a server beside each worker.

constexpr std::array kEc0{
    PublishedPoint{1, 64, 52.4, kFitted},     PublishedPoint{8, 64, 378, kFitted},
    PublishedPoint{16, 64, 751, kFitted},     PublishedPoint{32, 64, 1388, kPredicted},
    PublishedPoint{64, 64, 2744, kPredicted},
};
constexpr std::array kEc1{
    PublishedPoint{1, 64, 29.7, kFitted},     PublishedPoint{8, 64, 229, kFitted},
    PublishedPoint{16, 64, 459, kFitted},     PublishedPoint{32, 64, 902, kPredicted},
    PublishedPoint{64, 64, 1783, kPredicted},
};
constexpr std::array kEc2{
    PublishedPoint{1, 32, 19.4, kFitted},    PublishedPoint{8, 32, 146, kFitted},
    PublishedPoint{16, 32, 291, kFitted},    PublishedPoint{32, 32, 565, kPredicted},
    PublishedPoint{64, 32, 981, kPredicted},
};

// tensorpack/benchmarks, ResNet-MultiGPU: eight P100; rates in units of one device's.

constexpr std::array kTensorpack0{
    PublishedPoint{1, 64, 1, kFitted},
    PublishedPoint{2, 64, 1.88, kFitted},
    PublishedPoint{4, 64, 3.52, kFitted},
    PublishedPoint{8, 64, 7.04, kPredicted},
};
constexpr std::array kTensorpack1{
    PublishedPoint{1, 64, 1, kFitted},
    PublishedPoint{2, 64, 1.88, kFitted},
    PublishedPoint{4, 64, 3.6, kFitted},
    PublishedPoint{8, 64, 7.28, kPredicted},
};

// tensorpack/benchmarks, ResNet-Horovod: P100, epochs over reported time; the middle of the range.
constexpr std::array kClusters{
    PublishedPoint{128, 64, 23800, kFitted}, PublishedPoint{128, 32, 19750, kFitted},
    PublishedPoint{32, 64, 6400, kPredicted}, PublishedPoint{256, 32, 28650, kPredicted}};

// Horovod's documentation (512 P100 in 128 hosts, 25 Gbit/s RoCE: 90, 90 and 68 % of one device's
// rate times 512) and paper (arXiv 1802.05799: 128 of them over TCP, 88 %). Rates of one device are
// TensorFlow's, above, and for ResNet-101 third-party.
constexpr double kInceptionRate = 142, kResnet101Rate = 130, kVggRate = 154;
constexpr std::array kHorovod{
    PublishedPoint{512, 64, 512 * 0.90 * kInceptionRate, kFitted, "Inception v3", kInception3,
                   1e3 / kInceptionRate},
    PublishedPoint{512, 64, 512 * 0.68 * kVggRate, kFitted, "VGG-16", kVgg16, 1e3 / kVggRate},
    PublishedPoint{512, 64, 512 * 0.90 * kResnet101Rate, kPredicted, "ResNet-101", kResnet101,
                   1e3 / kResnet101Rate},
    PublishedPoint{128, 64, 128 * 0.88 * kInceptionRate, kPredicted, "Inception v3, TCP",
                   kInception3, 1e3 / kInceptionRate},
    PublishedPoint{128, 64, 128 * 0.88 * kResnet101Rate, kPredicted, "ResNet-101, TCP", kResnet101,
                   1e3 / kResnet101Rate}};

// NVIDIA DeepLearningExamples, PyTorch, ResNet-50 v1.5, real data: one device and eight of one
// host.
constexpr std::array kNvidia{
    PublishedPoint{8, 256, 7248, kFitted, "A100, TF32", 0, 1e3 / 938},
    PublishedPoint{8, 256, 2855, kPredicted, "V100, fp32", 0, 1e3 / 367},
    PublishedPoint{8, 256, 16621, kPredicted, "A100, mixed", 0, 1e3 / 2470},
    PublishedPoint{8, 256, 8322, kPredicted, "V100, mixed", 0, 1e3 / 1200}};

constexpr std::string_view kKungfuSource =
                               "KungFu, benchmarks/system: 16 V100 in two DGX-1, 100 Gbit/s",
                           kDgxSource = "TensorFlow, May 2017: DGX-1, 8 P100",
                           kEcSource =
                               "TensorFlow, May 2017: EC2 p2.8xlarge, K80, distributed_replicated",
                           kTensorpackSource = "tensorpack/benchmarks: 8 P100";

constexpr OpenConstants kBatches{.per_image = true, .bandwidth = true},
    kRanks{.per_image = true, .jitter = true};

constexpr std::array kSeries{
    PublishedSeries{
        "ResNet-50, synchronous SGD of KungFu", kKungfuSource, {}, kResnet50, kBatches, kKungfu0},
    PublishedSeries{
        "ResNet-50, Horovod 0.16.1 over TCP", kKungfuSource, {}, kResnet50, kBatches, kKungfu1},
    PublishedSeries{
        "ResNet-50, asynchronous SGD of KungFu", kKungfuSource, {}, kResnet50, kBatches, kKungfu2},
    PublishedSeries{"ResNet-50, parameter servers of TensorFlow 1.13.1",
                    kKungfuSource,
                    {},
                    kResnet50,
                    kBatches,
                    kKungfu3},
    PublishedSeries{
        "VGG-16, synchronous SGD of KungFu", kKungfuSource, {}, kVgg16, kBatches, kKungfu4},
    PublishedSeries{
        "VGG-16, Horovod 0.16.1 over TCP", kKungfuSource, {}, kVgg16, kBatches, kKungfu5},
    PublishedSeries{
        "VGG-16, asynchronous SGD of KungFu", kKungfuSource, {}, kVgg16, kBatches, kKungfu6},
    PublishedSeries{"VGG-16, parameter servers of TensorFlow 1.13.1",
                    kKungfuSource,
                    {},
                    kVgg16,
                    kBatches,
                    kKungfu7},
    PublishedSeries{"Inception v3, synchronous SGD of KungFu",
                    kKungfuSource,
                    {},
                    kInception3,
                    kBatches,
                    kKungfu8},
    PublishedSeries{"Inception v3, Horovod 0.16.1 over TCP",
                    kKungfuSource,
                    {},
                    kInception3,
                    kBatches,
                    kKungfu9},
    PublishedSeries{"Inception v3, asynchronous SGD of KungFu",
                    kKungfuSource,
                    {},
                    kInception3,
                    kBatches,
                    kKungfu10},
    PublishedSeries{"Inception v3, parameter servers of TensorFlow 1.13.1",
                    kKungfuSource,
                    {},
                    kInception3,
                    kBatches,
                    kKungfu11},
    PublishedSeries{
        "ResNet-50, batch 64, parameters on the CPU", kDgxSource, {}, kResnet50, kRanks, kDgx0},
    PublishedSeries{
        "ResNet-50, batch 32, parameters on the CPU", kDgxSource, {}, kResnet50, kRanks, kDgx1},
    PublishedSeries{
        "ResNet-50, batch 64, ImageNet as input", kDgxSource, {}, kResnet50, kRanks, kDgx2},
    PublishedSeries{"Inception v3, batch 64", kDgxSource, {}, kInception3, kRanks, kDgx3},
    PublishedSeries{
        "VGG-16, batch 64, replicated over NCCL", kDgxSource, {}, kVgg16, kRanks, kDgx4},
    PublishedSeries{"AlexNet, batch 512", kDgxSource, {}, kAlexnet, kRanks, kDgx5},
    PublishedSeries{"ResNet-50, batch 64", kEcSource, {}, kResnet50, kRanks, kEc0},
    PublishedSeries{"Inception v3, batch 64", kEcSource, {}, kInception3, kRanks, kEc1},
    PublishedSeries{"ResNet-152, batch 32", kEcSource, {}, kResnet152, kRanks, kEc2},
    PublishedSeries{"ResNet-50, replicated", kTensorpackSource, "rates in units of one device",
                    kResnet50, kRanks, kTensorpack0},
    PublishedSeries{"ResNet-50, parameter_server", kTensorpackSource,
                    "rates in units of one device", kResnet50, kRanks, kTensorpack1},
    PublishedSeries{"ResNet-50, Horovod", "tensorpack/benchmarks: P100 clusters",
                    "times are rounded to minutes: 3 %", kResnet50, kBatches, kClusters},
    PublishedSeries{
        "three models, Horovod", "Horovod, documentation and arXiv 1802.05799: P100, 25 Gbit/s",
        "rates of one device are third-party; the chart was over RDMA; ResNet-101 is 90 % like the "
        "fitted Inception v3, "
        "all of it hidden, so that its error says nothing",
        0, OpenConstants{.per_image = false, .bandwidth = true, .jitter = true}, kHorovod},
    PublishedSeries{"ResNet-50 v1.5, one host", "NVIDIA DeepLearningExamples, PyTorch, real data",
                    "what input costs at eight devices is not in the formula", kResnet50,
                    OpenConstants{.per_image = false, .jitter = true}, kNvidia},
};

constexpr std::array<std::string_view, 3> kLeftOut{
    "MLPerf Training v3.0, ResNet-50 on H100: minutes to an accuracy, which larger batches reach "
    "in more epochs",
    "Zhang et al. 2020 (arXiv 2006.10103), 64 V100 on 100 Gbit/s: a range of 60 to 76 %, no rates",
    "Horovod's paper, about 50 % for TensorFlow's own servers on 128 P100: no rates, nothing to "
    "fit"};

}  // namespace

std::span<const PublishedSeries> published_scaling() { return kSeries; }

std::span<const std::string_view> left_out() { return kLeftOut; }

}  // namespace penstock::scaling
