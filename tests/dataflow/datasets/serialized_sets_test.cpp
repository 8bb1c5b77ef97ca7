// SPDX-License-Identifier: Apache-2.0
// Data sets as tensorpack's serializers write them: what is written here is read by Python's own
// packages, and what these write is read here. Damage costs the sample or the file that has it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "dataflow/datasets/dataset_writer.h"
#include "dataflow/datasets/lmdb.h"
#include "dataflow/datasets/mapped_file.h"
#include "dataflow/error.h"
#include "tests/fuzz/mutation.h"
#include "tests/support/jpeg_writer.h"
#include "tests/support/python.h"
#include "tests/support/source_fixture.h"
#include "tests/support/text_bytes.h"
#include "tests/support/text_files.h"
#include "tests/support/whole_run.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

class SerializedSetsTest : public SourceFixture {
 protected:
  SerializedSetsTest() {
    plan_.threads = 2;
    Random random(5);
    // Shorter and longer than the lengths that MessagePack writes in 8 and in 16 bits.
    for (const auto& [bytes, label] : {std::pair{3, 0},
                                       {200, 127},
                                       {255, 128},
                                       {300, 255},
                                       {5000, 256},
                                       {66'000, 999},
                                       {40, 70'000}}) {
      Bytes content(static_cast<std::size_t>(bytes));
      random.fill(content);
      samples_.push_back({label, text_of(content)});
    }
    plan_.classes = 70'001;
  }

  /// Writes the samples. Skips the test if this program has no such writer.
  void write(const std::string& to, std::int32_t image_size = 0) {
    std::filesystem::remove_all(path("set"));
    std::filesystem::create_directories(path("set"));
    plan_.directory = path("set");
    const ComponentText parts = parse_component(to);
    const auto& entry = find_entry(datasets::dataset_writer_table(), parts.name);
    const auto writer = entry.make({.directory = plan_.directory,
                                    .samples = samples_.size(),
                                    .classes = plan_.classes,
                                    .image_size = image_size},
                                   Options(entry.name, entry.options, parts));
    for (const GivenImage& sample : samples_) {
      writer->add(std::as_bytes(std::span(sample.content)), sample.label);
    }
    writer->finish();
  }

  static bool has_format(std::string_view name) {
    const auto& entries = datasets::dataset_writer_table().entries;
    return std::ranges::any_of(entries, [&](const auto* entry) { return entry->name == name; });
  }

  /// All samples; errors go to `refused_`.
  std::vector<GivenImage> read(const std::string& source) {
    refused_.clear();
    return SourceFixture::read(*open(source), &refused_);
  }

  /// Where and what: the lines that each Python script prints for a list of datapoints.
  std::string expected_lines() const {
    std::string lines;
    for (const GivenImage& sample : samples_) {
      lines += fmt::format("ndarray uint8 ({},) int {} ", sample.content.size(), sample.label);
      for (const unsigned char c : sample.content.substr(0, 100)) lines += fmt::format("{:02x}", c);
      lines += '\n';
    }
    return lines;
  }

  std::vector<GivenImage> samples_;
  std::vector<std::string> refused_;
};

constexpr const char* kTell = R"(
import pickle, struct, sys
def tell(point):
    image, label = point
    print(type(image).__name__, image.dtype, image.shape, type(label).__name__, label, image.tobytes()[:100].hex())
def loads(data):
    if sys.argv[2] == 'pickle':
        return pickle.loads(data)
    import msgpack, msgpack_numpy
    return msgpack.unpackb(data, raw=False, object_hook=msgpack_numpy.decode)
)";

TEST_F(SerializedSetsTest, PayloadTfRecordsAreReadHereAndByPython) {
  for (const std::string dumps : {"pickle", "msgpack"}) {
    SCOPED_TRACE(dumps);
    write("tfrecord:record=datapoint,dumps=" + dumps);
    EXPECT_EQ(read("tfrecord"), samples_);
    EXPECT_EQ(read("tfrecord:record=datapoint"), samples_);
    if (!python_has("numpy, msgpack, msgpack_numpy")) continue;
    const std::string told = run_python(std::string(kTell) + R"(
file = open(sys.argv[1] + '/train-00000-of-00001', 'rb')
while head := file.read(12):
    tell(loads(file.read(struct.unpack('<Q', head[:8])[0])))
    file.read(4)
)",
                                        {plan_.directory, dumps});
    EXPECT_EQ(told, expected_lines());
  }
}

TEST_F(SerializedSetsTest, DatabasesOfDatapointsAreReadHereAndByPython) {
  if (!has_format("lmdb")) GTEST_SKIP() << "built without liblmdb (liblmdb-dev)";
  for (const std::string dumps : {"pickle", "msgpack"}) {
    SCOPED_TRACE(dumps);
    write("lmdb:format=datapoint,dumps=" + dumps);
    EXPECT_EQ(read("lmdb"), samples_);
    const datasets::MappedFile file(path("set/data.mdb"));
    std::string keys;
    datasets::read_lmdb(
        file.bytes(),
        [&](const datasets::LmdbEntry& entry) {
          keys += text_of(entry.key) + ' ';
          folder_.write("values/" + text_of(entry.key),
                        Bytes(entry.value.begin(), entry.value.end()));
          return true;
        },
        [](std::uint64_t) { ADD_FAILURE(); });
    EXPECT_EQ(keys, "00000000 00000001 00000002 00000003 00000004 00000005 00000006 __keys__ ");
    if (!python_has("numpy, msgpack, msgpack_numpy")) continue;
    const std::string told = run_python(std::string(kTell) + R"(
for key in loads(open(sys.argv[1] + '/__keys__', 'rb').read()):
    tell(loads(open(sys.argv[1] + '/' + key.decode(), 'rb').read()))
)",
                                        {path("values"), dumps});
    EXPECT_EQ(told, expected_lines());
  }
}

TEST_F(SerializedSetsTest, ArchivesOfNumpyAreReadHereAndByNumpy) {
  write("npz");
  EXPECT_EQ(read("npz"), samples_);
  if (!python_has("numpy")) GTEST_SKIP() << "needs /usr/bin/python3 with NumPy (python3-numpy)";
  const std::string told = run_python(std::string(kTell) + R"(
import numpy
buffer = numpy.load(sys.argv[1] + '/train.npz', allow_pickle=True)['buffer']
for point in buffer:
    tell(point)
print(buffer.shape, buffer.dtype)
)",
                                      {plan_.directory, "pickle"});
  EXPECT_EQ(told, expected_lines() + "(7, 2) object\n");
}

TEST_F(SerializedSetsTest, NumpysArchivesOfDatapointsAreRead) {
  if (!python_has("numpy")) GTEST_SKIP() << "needs /usr/bin/python3 with NumPy (python3-numpy)";
  for (const std::string save : {"savez", "savez_compressed"}) {
    for (const std::string kind : {"encoded", "pixels", "fortran", "lists"}) {
      SCOPED_TRACE(save + ", " + kind);
      run_python(R"(
import sys, numpy as np
folder, save, kind = sys.argv[1:]
points = []
for i in range(5):
    image = (np.arange(4 * (i + 2) * 3) * 3 + i).astype('u1')
    if kind in ('pixels', 'fortran'):
        image = image.reshape(4, i + 2, 3)
    points.append([np.asfortranarray(image) if kind == 'fortran' else image, np.int64(i) if i % 2 else i])
buffer = np.asarray(points, dtype=object)
if kind == 'lists':  # an array [N] of lists
    buffer = np.empty(5, dtype=object)
    buffer[:] = points
getattr(np, save)(folder + '/set.npz', buffer=buffer)
)",
                 {plan_.directory, save, kind});
      const bool pixels = kind == "pixels" || kind == "fortran";
      std::vector<GivenImage> expected;
      for (int i = 0; i < 5; ++i) {
        std::string content;
        for (int at = 0; at < 4 * (i + 2) * 3; ++at) content += static_cast<char>(at * 3 + i);
        expected.push_back(
            {i, content, pixels ? PixelLayout{i + 2, 4, 3, false, true} : PixelLayout{}});
      }
      EXPECT_EQ(read("npz"), expected);
      EXPECT_EQ(open("npz")->facts().kind, pixels ? SampleKind::pixels : SampleKind::encoded);
      if (pixels) {
        EXPECT_FALSE(read("npz:channels=rgb").front().layout.bgr);
      }
    }
  }
}

/// Five images [5, 4, 6, 3] and their labels, as NumPy's or h5py's calls write them.
std::vector<GivenImage> five_images(bool planar = false) {
  std::vector<GivenImage> expected;
  for (int i = 0; i < 5; ++i) {
    std::string content;
    for (int at = 0; at < 72; ++at) content += static_cast<char>(i * 72 + at);
    expected.push_back(
        {9 - i, content, planar ? PixelLayout{6, 4, 3, true} : PixelLayout{6, 4, 3}});
  }
  return expected;
}

TEST_F(SerializedSetsTest, NumpysArchivesOfPixelsAreRead) {
  if (!python_has("numpy")) GTEST_SKIP() << "needs /usr/bin/python3 with NumPy (python3-numpy)";
  run_python(R"(
import sys, numpy as np
images, labels = np.arange(360).astype('u1').reshape(5, 4, 6, 3), 9 - np.arange(5)
np.savez(sys.argv[1] + '/a.npz', images=images, labels=labels, names=np.array(['x', 'yz']))
np.savez_compressed(sys.argv[1] + '/b.npz', x_test=images[:0], y_train=labels.astype('>i2'), x_train=images)
np.savez(sys.argv[1] + '/c.npz', images=np.asfortranarray(images), labels=labels)
np.savez(sys.argv[1] + '/d.npz', images=images, labels=labels[:4])
)",
             {plan_.directory});
  const auto of = [&](const std::string& name) { plan_.directory = path(name); };
  const std::string folder = plan_.directory;
  of("a.npz");
  EXPECT_EQ(read("npz"), five_images());
  EXPECT_EQ(open("npz")->facts().files, nullptr);  // samples are in memory
  EXPECT_TRUE(read("npz:channels=bgr").front().layout.bgr);
  of("b.npz");
  EXPECT_EQ(read("npz:images=x_train"), five_images());
  EXPECT_TRUE(says(refusal("npz"), "2 columns of images"));
  EXPECT_TRUE(says(refusal("npz:images=x_train,labels=names"), "has no column 'names'"));
  of("c.npz");
  EXPECT_TRUE(says(refusal("npz"), "Fortran"));
  of("d.npz");
  EXPECT_TRUE(says(refusal("npz"), "one label for each of 5 images"));
}

TEST_F(SerializedSetsTest, PythonsHdf5FilesAreRead) {
  if (!has_format("hdf5")) GTEST_SKIP() << "built without HDF5 (libhdf5-dev)";
  if (!python_has("numpy, h5py")) GTEST_SKIP() << "needs /usr/bin/python3 with h5py (python3-h5py)";
  run_python(R"(
import sys, h5py, numpy as np
images, labels = np.arange(360).astype('u1').reshape(5, 4, 6, 3), 9 - np.arange(5)
def write(name, libver=None, **how):
    with h5py.File(sys.argv[1] + '/' + name, 'w', libver=libver) as file:
        file.create_dataset('p1', data=list(images), **how)
        file.create_dataset('p2', data=[int(label) for label in labels])
write('plain.h5')
write('latest.h5', 'latest')
write('chunked.h5', chunks=(2, 4, 3, 3))
write('deflated.h5', compression='gzip', shuffle=True)
with h5py.File(sys.argv[1] + '/groups.hdf5', 'w') as file:
    file['train/image'], file['train/label'] = images, labels.astype('>u2').reshape(5, 1)
    file['test/image'], file['test/label'] = images[:2], labels[:2]
    file['mean'] = np.ones(3)
    file['elsewhere'] = h5py.ExternalLink('plain.h5', 'p1')
with h5py.File(sys.argv[1] + '/outside.h5', 'w') as file:
    file.create_dataset('image', (5, 4, 6, 3), 'u1', external=[('/etc/passwd', 0, 360)])
    file['label'] = labels
with h5py.File(sys.argv[1] + '/labels.h5', 'w') as file:
    file.create_dataset('label', (5,), 'u1', external=[('/etc/passwd', 0, 5)])
    file['image'] = images
)",
             {plan_.directory});
  const auto of = [&](const std::string& name) { plan_.directory = path(name); };
  of("plain.h5");
  EXPECT_EQ(read("hdf5"), five_images());
  EXPECT_NE(open("hdf5")->facts().files, nullptr);  // mapped, since it is in one piece
  for (const char* name : {"latest.h5", "chunked.h5", "deflated.h5"}) {
    of(name);
    EXPECT_EQ(read("hdf5"), five_images()) << name;
  }
  of("groups.hdf5");
  EXPECT_EQ(read("hdf5:image=train/image,label=train/label"), five_images());
  EXPECT_TRUE(says(refusal("hdf5"), "2 columns of image"));
  for (const char* name : {"outside.h5", "labels.h5"}) {
    of(name);
    EXPECT_TRUE(says(refusal("hdf5"), "stored in other files")) << name;
  }
  of("plain.h5");
  run_of("queue", plan_.directory);
}

TEST_F(SerializedSetsTest, Hdf5FilesAreReadHereAndByPython) {
  if (!has_format("hdf5")) GTEST_SKIP() << "built without HDF5 (libhdf5-dev)";
  for (GivenImage& sample : samples_) {
    sample.content = std::string(3 * 8 * 8, static_cast<char>(sample.label % 251));
    sample.layout = {8, 8, 3};
  }
  write("hdf5", 8);
  EXPECT_EQ(read("hdf5"), samples_);
  if (!python_has("numpy, h5py")) GTEST_SKIP() << "needs /usr/bin/python3 with h5py (python3-h5py)";
  EXPECT_EQ(run_python(R"(
import sys, h5py
with h5py.File(sys.argv[1] + '/train.h5', 'r') as file:
    image, label = file['image'], file['label']
    print(image.shape, image.dtype, image.chunks, label.shape, label.dtype, label[:].tolist())
    print([int(x) for x in image[:, 7, 7, 2]], int(image[3].min()) == int(image[3].max()))
)",
                       {plan_.directory}),
            "(7, 8, 8, 3) uint8 None (7,) int64 [0, 127, 128, 255, 256, 999, 70000]\n"
            "[0, 127, 128, 4, 5, 246, 222] True\n");
}

TEST_F(SerializedSetsTest, ADamagedFileCostsItselfAlone) {
  for (const std::string format : {"npz", "hdf5"}) {
    if (!has_format(format)) continue;
    SCOPED_TRACE(format);
    const bool pixels = format == "hdf5";
    for (GivenImage& sample : samples_) {
      if (!pixels) continue;
      sample.content = std::string(3 * 8 * 8, 'x');
      sample.layout = {8, 8, 3};
    }
    write(format, pixels ? 8 : 0);
    const std::string end = pixels ? ".h5" : ".npz",
                      whole = read_text(folder_ / ("set/train" + end));
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{30}, whole.size() / 2, whole.size() - 1}) {
      // Before and after the good file in the order of names.
      for (const std::string name : {"set/a", "set/z"}) {
        write_text(folder_ / (name + end), whole.substr(0, bytes));
        EXPECT_EQ(read(format), samples_) << bytes;
        ASSERT_EQ(refused_.size(), 1U);
        EXPECT_TRUE(says(refused_.front(), name + end)) << refused_.front();
        std::filesystem::remove(folder_ / (name + end));
      }
    }
    // Alone it is refused before the run.
    write_text(folder_ / ("set/train" + end), whole.substr(0, whole.size() / 2));
    EXPECT_TRUE(says(refusal(format), "train" + end)) << refusal(format);
  }
}

TEST_F(SerializedSetsTest, EveryChangedByteOfAnArchiveIsFoundByItsChecksumOrItsLengths) {
  write("npz");
  const std::string whole = read_text(path("set/train.npz"));
  std::size_t refused = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    Random random(7, 0, i);
    Bytes bytes = bytes_of_text(whole);
    mutate(bytes, random);
    write_text(path("set/train.npz"), text_of(bytes));
    try {
      EXPECT_EQ(read("npz"), samples_);  // the change was in a byte that nothing needs
    } catch (const ConfigError& error) {
      EXPECT_TRUE(says(std::string(error.what()), "train.npz")) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 200U);
}

TEST_F(SerializedSetsTest, AnInvalidDatapointCostsNoOther) {
  if (!python_has("numpy")) GTEST_SKIP() << "needs /usr/bin/python3 with NumPy (python3-numpy)";
  run_python(R"(
import sys, numpy as np
image = np.arange(50, dtype='u1')
points = [[image, 1], [image, 'cat'], [image.astype('f4'), 2], [None, 3], [image.reshape(5, 10), 4], [image, -1], [image, 5]]
np.savez(sys.argv[1] + '/set.npz', buffer=np.asarray(points, dtype=object))
)",
             {plan_.directory});
  std::vector<std::int32_t> labels;
  for (const GivenImage& sample : read("npz")) labels.push_back(sample.label);
  EXPECT_EQ(labels, (std::vector<std::int32_t>{1, 5}));
  EXPECT_EQ(refused_.size(), 5U);
}

TEST_F(SerializedSetsTest, FeedRuns) {
  plan_.classes = 1000;
  for (const char* to : {"npz", "tfrecord:record=datapoint", "lmdb:format=datapoint"}) {
    if (!has_format(parse_component(to).name)) continue;
    samples_.clear();
    for (int i = 0; i < 6; ++i) {
      samples_.push_back({i, text_of(encode_jpeg(make_test_image(90 + i, 80)))});
    }
    write(to);
    run_of("queue", plan_.directory);
  }
}

}  // namespace
}  // namespace penstock
