// SPDX-License-Identifier: Apache-2.0
// The saved file list of an image folder; the oracle is the directory listing.
#include "dataflow/datasets/manifest.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>

#include "dataflow/error.h"
#include "tests/support/manifest_bytes.h"
#include "tests/support/source_fixture.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// Joins "c" and 100 to "c100".
std::string named(std::string letter, std::size_t number) {
  return letter += std::to_string(number);
}

const std::vector<ManifestFolder> kFolders{
    {"ant", 5, {"0.JPEG", "1.jpg"}}, {"bee", -7, {}}, {"cat", 9, {"a b.png"}}};

// ---- the bytes --------------------------------------------------------------

TEST(Manifest, IsReadAsItWasWritten) {
  const std::vector<std::byte> bytes = manifest_bytes(kFolders);
  const datasets::Manifest manifest = datasets::parse_manifest(bytes);
  ASSERT_EQ(manifest.classes.size(), 3U);
  EXPECT_EQ(manifest.classes[1].name, "bee");
  EXPECT_EQ(manifest.classes[1].files, 0U);
  EXPECT_EQ(manifest.classes[1].modified, -7);
  EXPECT_EQ(manifest.files, 3U);
  EXPECT_EQ(manifest.names, std::string_view("0.JPEG\0001.jpg\0a b.png\0", 21));
  const std::string whole = datasets::manifest_head(manifest) + std::string(manifest.names);
  EXPECT_EQ(whole, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

TEST(Manifest, EveryKindOfDamageIsRefused) {
  const auto refusal = [](std::vector<std::byte> bytes) {
    seal_manifest(bytes);
    return thrown_by<DataError>([&] { datasets::parse_manifest(bytes); });
  };
  const auto with = [&](std::size_t at, std::uint64_t value, std::size_t size = 8) {
    std::vector<std::byte> bytes = manifest_bytes(kFolders);
    std::memcpy(bytes.data() + at, &value, size);
    return refusal(bytes);
  };
  const auto of = [&](std::vector<ManifestFolder> folders) {
    return refusal(manifest_bytes(folders));
  };
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(refusal({}), "it is no manifest");
  EXPECT_EQ(with(0, 'x', 1), "it is no manifest");
  EXPECT_EQ(with(16, 2, 4), "it has version 2; known is 1");
  EXPECT_EQ(with(24, 0), "it lists nothing");
  EXPECT_TRUE(says(with(24, kMost), "not those of 18446744073709551615 classes"));
  EXPECT_TRUE(says(with(24, 4), "not those of 4 classes"));
  EXPECT_TRUE(says(with(32, std::uint64_t{1} << 32), "says to list 4294967296"));
  EXPECT_EQ(with(32, 4), "its classes have fewer files than it says");
  EXPECT_EQ(with(32, 2), "its classes have more files than it says");
  EXPECT_TRUE(says(with(40, kMost), "bytes of names"));
  EXPECT_EQ(with(48, kMost), "its classes have more files than it says");
  EXPECT_EQ(of({{"ant", 0, {"a/b"}}}), "it has 'a/b' as a name");
  EXPECT_EQ(of({{"..", 0, {"a"}}}), "it has '..' as a name");
  EXPECT_EQ(of({{"ant", 0, {"a", ""}}}), "it has '' as a name");
  EXPECT_EQ(of({{"ant", 0, {"b", "a"}}}), "the name 'a' is not sorted after 'b'");
  EXPECT_EQ(of({{"ant", 0, {"a"}}, {"ant", 0, {}}}), "the name 'ant' is not sorted after 'ant'");
  EXPECT_EQ(of({{"ant", 0, {std::string("a\0b", 3)}}}), "it has more names than files and classes");
  std::vector<std::byte> open = manifest_bytes(kFolders);
  open.back() = std::byte{'x'};
  EXPECT_EQ(refusal(open), "it has fewer names than files and classes");
  std::vector<std::byte> flipped = manifest_bytes(kFolders);
  for (std::size_t at = 24; at < flipped.size(); ++at) {
    flipped[at] ^= std::byte{4};
    EXPECT_THROW(datasets::parse_manifest(flipped), DataError) << "a bit of byte " << at;
    flipped[at] ^= std::byte{4};
  }
  for (std::size_t size = 0; size < flipped.size(); ++size) {
    EXPECT_THROW(datasets::parse_manifest(std::span(flipped).first(size)), DataError)
        << size << " bytes";
  }
}

// ---- the folder -------------------------------------------------------------

/// 40 classes of 0, 1, ..., 39 files, last changed long ago.
class ImageManifestTest : public SourceFixture {
 protected:
  ImageManifestTest() {
    for (std::size_t label = 0; label < 40; ++label) {
      const std::string name = named("c", 100 + label);
      fs::create_directories(folder_ / ("images/" + name));
      for (std::size_t i = 0; i < label; ++i) {
        write_text(folder_ / ("images/" + name + "/" + std::to_string(i) + ".JPEG"), "x");
      }
      age(name);
    }
    plan_.directory = path("images");
    plan_.epochs = 2;
    plan_.shuffle = true;
  }

  void age(const std::string& name) const {
    fs::last_write_time(folder_ / ("images/" + name),
                        fs::file_time_type::clock::now() - std::chrono::hours(1));
  }
  std::unique_ptr<Source> open(const std::string& manifest) const {
    return SourceFixture::open(manifest.empty() ? "image-folder"
                                                : "image-folder:manifest=" + manifest);
  }
  std::string refusal(const std::string& manifest) const {
    return thrown_by<ConfigError>([&] { open(manifest); });
  }
  std::string saved() const { return path("saved"); }
};

TEST_F(ImageManifestTest, GivesTheSamplesOfTheListing) {
  const std::vector<GivenSample> listed = all_of(*open("off"));
  ASSERT_EQ(listed.size(), 2 * 780U);
  EXPECT_EQ(open("")->facts().note, "");
  const datasets::WrittenManifest written =
      datasets::write_manifest(plan_.directory, saved()).value();
  EXPECT_EQ(written.classes, 40U);
  EXPECT_EQ(written.files, 780U);
  EXPECT_EQ(written.bytes, fs::file_size(saved()));
  const auto named = open(saved());
  EXPECT_EQ(all_of(*named), listed);
  EXPECT_TRUE(says(named->facts().note, "780 images is that of '" + saved()));
  ASSERT_EQ(named->facts().files->size(), 780U);
  EXPECT_EQ(named->facts().files->path(779), plan_.directory + "/c139/9.JPEG");

  datasets::write_manifest(plan_.directory, datasets::default_manifest(plan_.directory));
  const auto found = open("");
  EXPECT_TRUE(says(found->facts().note, ".penstock-manifest"));
  EXPECT_EQ(all_of(*found), listed);
  EXPECT_EQ(open("off")->facts().note, "");
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_.path())) {
    EXPECT_NE(entry.path().extension(), ".part") << entry.path();
  }
}

TEST_F(ImageManifestTest, AChangedFolderIsNoticed) {
  const std::string beside = datasets::default_manifest(plan_.directory);
  const auto expect = [&](const std::string& reason) {
    const std::string error = refusal(saved());
    EXPECT_TRUE(says(error, reason));
    EXPECT_TRUE(says(error, saved()) && says(error, "penstock dataset index")) << error;
    const auto listed = open("auto");
    EXPECT_TRUE(says(listed->facts().note, "was not used") && says(listed->facts().note, reason))
        << listed->facts().note;
    EXPECT_EQ(all_of(*listed), all_of(*open("off"))) << "auto goes by the folder";
  };
  const auto renew = [&] {
    datasets::write_manifest(plan_.directory, saved());
    datasets::write_manifest(plan_.directory, beside);
    EXPECT_EQ(refusal(saved()), "nothing was thrown");
  };
  renew();
  write_text(folder_ / "images/c105/new.JPEG", "x");
  expect("the class folder 'c105' changed");
  age("c105");
  renew();
  fs::remove(folder_ / "images/c105/new.JPEG");
  expect("the class folder 'c105' changed");
  age("c105");
  renew();
  fs::create_directory(folder_ / "images/c1050");
  expect("the class folder 'c1050' is not in it");
  fs::remove(folder_ / "images/c1050");
  EXPECT_EQ(refusal(saved()), "nothing was thrown") << "as it was";
  fs::rename(folder_ / "images/c139", folder_ / "away");
  expect("the class folder 'c139' is in it, but no longer exists");
  fs::rename(folder_ / "away", folder_ / "images/c139");
  EXPECT_EQ(refusal(saved()), "nothing was thrown") << "moved back";
}

TEST_F(ImageManifestTest, ADamagedOrMissingOneIsRefusedByNameOrDoneWithout) {
  const std::string missing = refusal(saved());
  EXPECT_TRUE(says(missing, "'" + saved() + "'") && says(missing, "does not exist")) << missing;
  EXPECT_TRUE(says(missing, "--out " + saved()));
  const std::string beside = datasets::default_manifest(plan_.directory);
  datasets::write_manifest(plan_.directory, beside);
  std::string bytes = read_text(beside);
  bytes[bytes.size() / 2] ^= 1;
  write_text(beside, bytes);
  EXPECT_TRUE(says(refusal(beside), "it is damaged: its checksum"));
  EXPECT_TRUE(says(open("")->facts().note, "it is damaged: its checksum"));
  EXPECT_EQ(open("")->facts().size, 780U);
  write_text(beside, "");
  EXPECT_TRUE(says(refusal(beside), "it is no manifest"));
  EXPECT_TRUE(says(refusal(plan_.directory), "not a regular file"));
}

TEST_F(ImageManifestTest, AStopLeavesNothingBehind) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(datasets::write_manifest(plan_.directory, saved(), stop.get_token()));
  EXPECT_FALSE(fs::exists(saved()));
  write_text(saved(), "as before");
  EXPECT_FALSE(datasets::write_manifest(plan_.directory, saved(), stop.get_token()));
  EXPECT_EQ(read_text(saved()), "as before");
}

TEST_F(ImageManifestTest, WrongUsesAreRefused) {
  datasets::write_manifest(plan_.directory, saved());
  plan_.classes = 39;
  EXPECT_TRUE(says(refusal(saved()), "40 classes"));
  plan_.directory += "/nothing";
  EXPECT_TRUE(says(refusal(saved()), "does not exist"));
  EXPECT_THROW(datasets::write_manifest(plan_.directory, saved()), ConfigError);
  plan_.directory = path("images");
  EXPECT_TRUE(says(
      thrown_by<DataError>([&] { datasets::write_manifest(plan_.directory, path("no/folder")); }),
      "cannot write"));
}

// ---- its size ---------------------------------------------------------------

/// A memory figure of the kernel, in bytes.
std::uint64_t memory_in_use(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    std::uint64_t kib = 0;
    if (word == key && file >> kib) return 1024 * kib;
  }
  return 0;
}

using ManifestSize = SourceFixture;

/// PENSTOCK_TEST_FILES=10000000 sets another size; the memory per file is printed.
TEST_F(ManifestSize, ManyFilesTakeFewBytesEach) {
  const char* const asked = std::getenv("PENSTOCK_TEST_FILES");
  const std::size_t files = asked == nullptr ? 1'000'000 : std::strtoull(asked, nullptr, 10);
  constexpr std::size_t kClasses = 1000;
  plan_.classes = kClasses;
  plan_.shuffle = true;
  {
    std::string names;
    std::vector<std::string> folders;
    datasets::Manifest manifest;
    for (std::size_t label = 0; label < kClasses; ++label) {
      folders.push_back(named("n", 10'000'000 + label));
    }
    for (std::size_t label = 0; label < kClasses; ++label) {
      fs::create_directory(folder_ / folders[label]);
      struct stat status {};
      ASSERT_EQ(::stat(path(folders[label]).c_str(), &status), 0);
      const std::size_t count = files / kClasses + (label < files % kClasses ? 1 : 0);
      manifest.classes.push_back(
          {folders[label], count,
           std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec});
      for (std::size_t i = 0; i < count; ++i) {
        names += folders[label] + "_" + std::to_string(10'000 + i) + ".JPEG" + '\0';
      }
    }
    manifest.files = files;
    manifest.names = names;
    write_text(path("saved"), datasets::manifest_head(manifest) + names);
  }
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak
  const std::uint64_t resident = memory_in_use("VmRSS:");
  const struct mallinfo2 before = mallinfo2();
  const auto began = std::chrono::steady_clock::now();
  const auto source = open("image-folder:manifest=" + path("saved"));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const struct mallinfo2 after = mallinfo2();
  const std::uint64_t peak = memory_in_use("VmHWM:");
  const double each = 1.0 / static_cast<double>(files);
  const auto heap = static_cast<double>(after.uordblks + after.hblkhd) -
                    static_cast<double>(before.uordblks + before.hblkhd);
  const auto mapped = static_cast<double>(fs::file_size(path("saved")));
  std::cout << files << " files: opened in " << seconds << " s; " << each * heap
            << " bytes of memory a file, " << each * mapped << " of the mapped manifest; resident "
            << 1e-6 * static_cast<double>(resident) << " MB before, at most "
            << 1e-6 * static_cast<double>(peak) << " MB since\n";
  EXPECT_LT(each * heap, 6) << "4 are those of the order";
  EXPECT_LT(each * mapped, 26);
  Sample sample;
  std::uint64_t labels = 0;
  for (std::size_t i = 0; i < 10'000; ++i) {
    ASSERT_TRUE(source->next(sample));
    const std::string label = std::to_string(10'000'000 + sample.label);
    labels += sample.file.find("/n" + label + "/n" + label + "_") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(labels, 10'000U) << "such as " << sample.file;
}

}  // namespace
}  // namespace penstock
