// SPDX-License-Identifier: Apache-2.0
// Tests every model of the table against published figures or a count by hand.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "dataflow/error.h"
#include "tests/support/thrown_by.h"
#include "trainer/model.h"

namespace penstock {
namespace {

Graph build(std::string_view name, std::int32_t classes = 1000) {
  const ModelEntry& model = find_entry(model_table(), name);
  return build_graph(model, model.image, classes);
}

std::int64_t parameters(std::string_view name, std::int32_t classes = 1000) {
  return build(name, classes).parameter_count();
}

double gmac(std::string_view name) { return build(name).forward_macs_per_image() / 1e9; }

// ---- published figures ------------------------------------------------------

TEST(Models, AgreeWithTorchvision) {
  // num_params and GFLOPS (which are multiply-accumulates) in the documentation of
  // torchvision.models. Its ResNet is v1.5; its Inception v3 is counted without the auxiliary head.
  struct Published {
    std::string_view name;
    std::int64_t parameters;
    double gmac;  ///< to the given number of digits
  };
  constexpr Published kModels[] = {
      {"resnet18", 11'689'512, 1.814},      {"resnet34", 21'797'672, 3.664},
      {"resnet50_v1.5", 25'557'032, 4.089}, {"resnet101_v1.5", 44'549'160, 7.801},
      {"vgg11", 132'863'336, 7.609},        {"vgg16", 138'357'544, 15.470},
      {"vgg19", 143'667'240, 19.632},       {"inception3", 23'834'568, 5.713}};
  for (const Published& model : kModels) {
    EXPECT_EQ(parameters(model.name), model.parameters) << model.name;
    EXPECT_NEAR(gmac(model.name), model.gmac, 0.0006) << model.name;
  }
  EXPECT_EQ(parameters("resnet152_v1.5"), 60'192'808);
  EXPECT_NEAR(gmac("resnet152_v1.5"), 11.51, 0.006);
}

TEST(Models, InceptionFourAgreesWithOthers) {
  // Parameters: timm and pretrained-models.pytorch; work: 24.584 GFLOP in OpenVINO's model zoo.
  EXPECT_EQ(parameters("inception4"), 42'679'816);
  EXPECT_NEAR(gmac("inception4"), 24.584 / 2, 0.05);
}

TEST(Models, GoogLeNetAgreesWithCaffes) {
  // bvlc_googlenet without its auxiliary heads; "1.5 billion multiply-adds" in the paper.
  EXPECT_EQ(parameters("googlenet"), 6'998'552);
  EXPECT_NEAR(gmac("googlenet"), 1.55, 0.05);
}

TEST(Models, VersionTwoOfResNetHasThePublishedParametersAndTheWorkOfVersionOne) {
  // PreResNet-* in the tables of the imgclsmob model zoo, with the same definition.
  const std::map<std::string, std::int64_t> published{{"resnet18", 11'687'848},
                                                      {"resnet34", 21'796'008},
                                                      {"resnet50", 25'549'480},
                                                      {"resnet101", 44'541'608},
                                                      {"resnet152", 60'185'256}};
  for (const auto& [name, count] : published) {
    EXPECT_EQ(parameters(name + "_v2"), count);
    EXPECT_EQ(gmac(name + "_v2"), gmac(name)) << name;
  }
}

TEST(Models, VersionOneOfResNetStridesBeforeItsFirstConvolution) {
  // In the first block of stages 2 to 4, the first 1x1 convolution then processes a quarter of the
  // image.
  const double saved = 3 * 0.75 * 256 * 128 * 56 * 56 / 1e9;
  for (const std::string name : {"resnet50", "resnet101", "resnet152"}) {
    EXPECT_EQ(parameters(name), parameters(name + "_v1.5"));
    EXPECT_NEAR(gmac(name + "_v1.5") - gmac(name), saved, 1e-9) << name;
  }
  EXPECT_NEAR(gmac("resnet50"), 3.858, 0.0005);  // 3.8 billion in the paper
}

TEST(Models, OfficialResNetsDifferByTheirFirstProjectionAndTheirBareStem) {
  constexpr std::int64_t kStemNorm = 2 * 64;
  EXPECT_EQ(parameters("official_resnet50"), parameters("resnet50_v1.5"));
  EXPECT_EQ(gmac("official_resnet50"), gmac("resnet50_v1.5"));
  EXPECT_EQ(parameters("official_resnet18"), parameters("resnet18") + 64 * 64 + 2 * 64);
  EXPECT_EQ(parameters("official_resnet34_v2"), parameters("resnet34_v2") + 64 * 64 - kStemNorm);
  EXPECT_EQ(parameters("official_resnet152_v2"), parameters("resnet152_v2") - kStemNorm);
  EXPECT_EQ(gmac("official_resnet101_v2"), gmac("resnet101_v1.5"));
  EXPECT_EQ(parameters("official_resnet200"), 64'673'832);                 // resnet200 of timm
  EXPECT_EQ(parameters("official_resnet200_v2"), 64'666'280 - kStemNorm);  // PreResNet-200
}

// ---- counts by hand ---------------------------------------------------------

/// The bias of each output is absent if a batch norm follows.
constexpr std::int64_t conv(std::int64_t kernel, std::int64_t in, std::int64_t out) {
  return kernel * kernel * in * out + out;
}
constexpr std::int64_t affine(std::int64_t in, std::int64_t out) { return in * out + out; }

TEST(Models, AlexNetCountsByHand) {
  EXPECT_EQ(parameters("alexnet"), conv(11, 3, 64) + conv(5, 64, 192) + conv(3, 192, 384) +
                                       conv(3, 384, 384) + conv(3, 384, 256) +
                                       affine(6 * 6 * 256, 4096) + affine(4096, 4096) +
                                       affine(4096, 1000));
  EXPECT_NEAR(gmac("alexnet"),
              1e-9 * (55 * 55 * 11 * 11 * 3 * 64 + 27 * 27 * 5 * 5 * 64 * 192 +
                      13 * 13 * 9 * (192. * 384 + 384. * 384 + 384. * 256) + 9216. * 4096 +
                      4096. * 4096 + 4096. * 1000),
              1e-9);
  // "cifarnet" in the table of TensorNets, which comes from TF-slim: 1,756,426.
  EXPECT_EQ(parameters("alexnet_cifar10", 10), 1'756'426);
}

TEST(Models, OverFeatCountsByHand) {
  const std::int64_t common = conv(3, 256, 512) + conv(3, 512, 1024) + conv(3, 1024, 1024) +
                              affine(6 * 6 * 1024, 3072) + affine(3072, 4096) + affine(4096, 1000);
  EXPECT_EQ(parameters("overfeat"), conv(11, 3, 96) + conv(5, 96, 256) + common);
  // The same table has the version of TF-slim, which begins with 64 channels.
  EXPECT_EQ(conv(11, 3, 64) + conv(5, 64, 256) + common, 145'704'424);
}

TEST(Models, LeNetCountsByHand) {
  EXPECT_EQ(parameters("lenet", 10),
            conv(5, 3, 32) + conv(5, 32, 64) + affine(7 * 7 * 64, 512) + affine(512, 10));
}

TEST(Models, TrivialHasThreeAffineLayers) {
  for (const auto& [name, pixels] : {std::pair("trivial", 227 * 227 * 3),  //
                                     std::pair("trivial_cifar10", 32 * 32 * 3)}) {
    EXPECT_EQ(parameters(name, 10), affine(pixels, 1) + affine(1, 4096) + affine(4096, 10));
  }
}

TEST(Models, ResNetsForCifarCountByHand) {
  // The paper: 0.27, 0.46, 0.66, 0.85 and 1.7 million.
  EXPECT_EQ(parameters("resnet20", 10), 269'722);
  EXPECT_EQ(parameters("resnet110", 10), 1'727'962);
  for (const int depth : {20, 32, 44, 56, 110}) {
    const std::int64_t n = (depth - 2) / 6;  // blocks per stage
    const std::int64_t convolutions = 9 * (3 * 16 + 2 * n * 16 * 16 + 16 * 32 +
                                           (2 * n - 1) * 32 * 32 + 32 * 64 + (2 * n - 1) * 64 * 64);
    const std::int64_t norms = 2 * (16 + 2 * n * (16 + 32 + 64));
    const std::string name = "resnet" + std::to_string(depth);
    EXPECT_EQ(parameters(name, 10), convolutions + norms + affine(64, 10)) << name;
    // In v2 each block normalises its input instead of its output: 16 and 32 channels once more
    // instead of 32 and 64, and 64 after the last block.
    const std::int64_t more = 2 * (16 - 32 + 32 - 64 + 64);
    EXPECT_EQ(parameters(name + "_v2", 10), convolutions + norms + more + affine(64, 10)) << name;
  }
}

TEST(Models, DenseNetsHaveThePublishedParametersAndBiases) {
  // Without biases, as published: 1.0, 7.0 and 27.2 million in the paper.
  EXPECT_EQ(parameters("densenet40_k12", 10), 1'019'722 + 16 + 36 * 12 + 160 + 304);
  EXPECT_EQ(parameters("densenet100_k12", 10), 6'979'642 + 16 + 96 * 12 + 400 + 784);
  EXPECT_NEAR(1e-6 * static_cast<double>(parameters("densenet100_k24", 10)), 27.2, 0.06);
}

TEST(Models, TinyCnnCountsByHand) {
  const std::int64_t weights = 9 * (3 * 16 + 16 * 32 + 32 * 32 + 32 * 64 + 64 * 64);
  EXPECT_EQ(parameters("tiny_cnn", 10), weights + 2 * (16 + 2 * 32 + 2 * 64) + affine(64, 10));
}

TEST(Models, NullComputesNothing) {
  const Graph graph = build("null");
  EXPECT_TRUE(graph.nodes().empty());
  EXPECT_EQ(graph.parameter_count(), 0);
}

// ---- what all models keep ---------------------------------------------------

TEST(Models, BuildAtTheirOwnSizeAndAtTheLeastForAnyNumberOfClasses) {
  for (const ModelEntry* model : model_table().entries) {
    EXPECT_GT(model->batch, 0) << model->name;
    EXPECT_LE(model->min_side, model->image.height) << model->name;
    const ImageShape least{model->min_side, model->min_side, 3};
    for (const std::int32_t classes : {10, 1001, model->classes}) {
      for (const ImageShape& image : {model->image, least}) {
        const Graph graph = build_graph(*model, image, classes);
        if (graph.nodes().empty()) continue;
        EXPECT_EQ(graph.nodes().back().shape, (ImageShape{1, 1, classes})) << model->name;
      }
    }
  }
}

TEST(Models, RefuseSmallerImagesAndSayWhatToUse) {
  for (const ModelEntry* model : model_table().entries) {
    if (model->min_side == 1) continue;
    const ImageShape narrow{model->image.height, model->min_side - 1, 3};
    EXPECT_THROW(build_graph(*model, narrow, 10), ConfigError) << model->name;
  }
  const ModelEntry& inception = find_entry(model_table(), "inception3");
  EXPECT_EQ(thrown_by<ConfigError>([&] {
              build_graph(inception, {64, 80, 3}, 10);
            }),
            "model 'inception3' cannot take images of 64x80; expected at least 75x75; use larger "
            "images or another model");
  Graph graph({64, 64, 3});
  const std::string error = thrown_by<ConfigError>([&] { inception.build(graph, 10); });
  EXPECT_TRUE(says(error, "'mixed_7a.3x3.conv2'"));
  EXPECT_TRUE(says(error, "use larger images"));
}

TEST(Models, UnpaddedNetsStateTheExactLeastSide) {
  for (const char* name :
       {"alexnet", "overfeat", "vgg16", "inception3", "inception4", "lenet", "densenet40_k12"}) {
    const ModelEntry& model = find_entry(model_table(), name);
    Graph graph({model.min_side - 1, model.min_side - 1, 3});
    EXPECT_THROW(model.build(graph, 10), ConfigError) << name;
  }
}

TEST(Models, NameEachNodeOnce) {
  for (const ModelEntry* model : model_table().entries) {
    std::set<std::string> names;
    const Graph graph = build_graph(*model, model->image, 10);
    for (const Node& node : graph.nodes()) {
      EXPECT_TRUE(names.insert(node.name).second) << model->name << " " << node.name;
    }
  }
}

TEST(Models, AnswerToOtherSystemsNames) {
  const std::map<std::string, std::string> names{{"ResNet50", "resnet50"},
                                                 {"ResNet101", "resnet101"},
                                                 {"VGG19", "vgg19"},
                                                 {"InceptionV3", "inception3"},
                                                 {"inceptionv3", "inception3"},
                                                 {"ResNet50V2", "resnet50_v2"},
                                                 {"resnet", "resnet152_v2"},
                                                 {"tensorpack", "resnet50"},
                                                 {"tfbench", "resnet50"},
                                                 {"resnet34_v1.5", "resnet34"},
                                                 {"resnet50-V1.5", "resnet50_v1.5"}};
  for (const auto& [alias, name] : names) {
    EXPECT_EQ(find_entry(model_table(), alias).name, name) << alias;
  }
}

TEST(Models, ShareNoName) {
  std::set<std::string> names;
  for (const ModelEntry* model : model_table().entries) {
    for (const std::string& name : names_of(*model)) {
      EXPECT_TRUE(names.insert(canonical_name(name)).second) << name;
    }
  }
  for (const AbsentEntry& absent : model_table().absent) {
    EXPECT_TRUE(names.insert(canonical_name(absent.name)).second) << absent.name;
  }
}

}  // namespace
}  // namespace penstock
