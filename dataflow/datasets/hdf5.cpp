// SPDX-License-Identifier: Apache-2.0
// HDF5 files of pixels, as tensorpack's HDF5Serializer and h5py write them: a data set of uint8
// images of one shape, and one of labels. The HDF5 library reads what describes the data; a data
// set that lies in one piece is then mapped, a chunked or compressed one is read into memory.
//
// The library trusts files. Nothing but the plain data sets of the file itself is read: no links to
// other files, no external or virtual storage, no filters that have to be loaded.
#include <fmt/format.h>
#include <hdf5.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dataflow/datasets/choose_column.h"
#include "dataflow/datasets/dataset_writer.h"
#include "dataflow/datasets/image_arrays.h"
#include "dataflow/datasets/shard_list.h"
#include "dataflow/error.h"
#include "dataflow/machine/dynamic_library.h"
#include "dataflow/machine/memory_limit.h"

// Constants such as H5F_ACC_RDONLY call the library before they give their number.
#undef H5CHECK
#undef H5OPEN
#define H5CHECK
#define H5OPEN

namespace penstock::datasets {
namespace {

constexpr OptionSpec kOptions[] = {
    {"image", "", "data set of the images; default: the only one, or the usual name"},
    {"label", "", "data set of the labels; default: the only one, or the usual name"},
    kImageArrayOptions[0],
    kImageArrayOptions[1],
};

constexpr std::string_view kUsualImageSets[] = {"image", "images", "x", "data"};
constexpr std::string_view kUsualLabelSets[] = {"label", "labels", "y"};

/// The functions and constants that are used here. The library needs two dozen others, which would
/// double the time in which the program starts, so it is opened for the first file.
struct Hdf5 {
  const DynamicLibrary library{PENSTOCK_HDF5_LIBRARY,
                               "install Debian's libhdf5-103-1 or, on Debian 13, libhdf5-310, or "
                               "convert the data on a machine that has it: penstock dataset "
                               "convert --to npz"};
  PENSTOCK_FUNCTION(H5open);
  PENSTOCK_FUNCTION(H5Dclose);
  PENSTOCK_FUNCTION(H5Dcreate2);
  PENSTOCK_FUNCTION(H5Dget_create_plist);
  PENSTOCK_FUNCTION(H5Dget_offset);
  PENSTOCK_FUNCTION(H5Dget_space);
  PENSTOCK_FUNCTION(H5Dget_type);
  PENSTOCK_FUNCTION(H5Dopen2);
  PENSTOCK_FUNCTION(H5Dread);
  PENSTOCK_FUNCTION(H5Dwrite);
  PENSTOCK_FUNCTION(H5Eset_auto2);
  PENSTOCK_FUNCTION(H5Fclose);
  PENSTOCK_FUNCTION(H5Fcreate);
  PENSTOCK_FUNCTION(H5Fflush);
  PENSTOCK_FUNCTION(H5Fopen);
  PENSTOCK_FUNCTION(H5Ovisit2);
  PENSTOCK_FUNCTION(H5PLset_loading_state);
  PENSTOCK_FUNCTION(H5Pclose);
  PENSTOCK_FUNCTION(H5Pcreate);
  PENSTOCK_FUNCTION(H5Pget_external_count);
  PENSTOCK_FUNCTION(H5Pget_layout);
  PENSTOCK_FUNCTION(H5Pset_file_locking);
  PENSTOCK_FUNCTION(H5Sclose);
  PENSTOCK_FUNCTION(H5Screate_simple);
  PENSTOCK_FUNCTION(H5Sget_simple_extent_dims);
  PENSTOCK_FUNCTION(H5Sget_simple_extent_ndims);
  PENSTOCK_FUNCTION(H5Sselect_hyperslab);
  PENSTOCK_FUNCTION(H5Tclose);
  PENSTOCK_FUNCTION(H5Tget_class);
  PENSTOCK_FUNCTION(H5Tget_sign);
  PENSTOCK_FUNCTION(H5Tget_size);
  const herr_t is_open = H5open();  // it sets the constants
  const hid_t file_access = *constant("H5P_CLS_FILE_ACCESS_ID_g"),
              native_uint8 = *constant("H5T_NATIVE_UINT8_g"),
              native_int64 = *constant("H5T_NATIVE_INT64_g"), uint8 = *constant("H5T_STD_U8LE_g"),
              int64 = *constant("H5T_STD_I64LE_g");

 private:
  const hid_t* constant(const char* name) const { return library[name]; }
};

const Hdf5& h5() {
  static const Hdf5 functions;
  return functions;
}

/// The library keeps global state, and may have been built without locks.
std::unique_lock<std::mutex> lock_library() {
  static std::mutex mutex;
  std::unique_lock lock(mutex);
  h5().H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // errors are reported here, not on stderr
  h5().H5PLset_loading_state(0);
  return lock;
}

/// A negative result is an error.
void check(hid_t result, const char* what) {
  if (result < 0) throw DataError("an HDF5 file whose {} cannot be read", what);
}

/// An object of the library, by the result of the call that made it.
template <auto Close>
class Object {
 public:
  Object(hid_t id, const char* what) : id_(id) { check(id, what); }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  ~Object() { (h5().*Close)(id_); }
  operator hid_t() const noexcept { return id_; }  // NOLINT(google-explicit-constructor)

 private:
  hid_t id_;
};
using File = Object<&Hdf5::H5Fclose>;
using Set = Object<&Hdf5::H5Dclose>;
using Space = Object<&Hdf5::H5Sclose>;
using Type = Object<&Hdf5::H5Tclose>;
using Properties = Object<&Hdf5::H5Pclose>;

/// Without locks, which some file systems lack.
hid_t make_access() {
  const hid_t properties = h5().H5Pcreate(h5().file_access);
  h5().H5Pset_file_locking(properties, false, true);
  return properties;
}

/// The type and the shape of a data set.
values::NumpyArray describe(const Set& set) {
  const Type type(h5().H5Dget_type(set), "type");
  const Space space(h5().H5Dget_space(set), "shape");
  values::NumpyArray array;
  const bool is_integer = h5().H5Tget_class(type) == H5T_INTEGER;
  array.type = {
      .kind = is_integer ? (h5().H5Tget_sign(type) == H5T_SGN_NONE ? 'u' : 'i') : 'f',
      .bytes = static_cast<std::uint8_t>(std::min<std::size_t>(h5().H5Tget_size(type), 255)),
      .big_endian = false};
  hsize_t lengths[values::kMaxNumpyDimensions] = {};
  const int count = h5().H5Sget_simple_extent_ndims(space);
  check(count, "shape");
  check(h5().H5Sget_simple_extent_dims(space, lengths, nullptr), "shape");
  for (int i = 0; i < count; ++i) {
    array.shape.push_back(static_cast<std::int64_t>(std::min<hsize_t>(lengths[i], INT64_MAX)));
  }
  return array;
}

/// Type and shape, for messages: "uint8 [24,72,80,3]".
std::string text_of(const Type& type, const values::NumpyArray& array) {
  constexpr std::pair<H5T_class_t, const char*> kOthers[] = {
      {H5T_STRING, "strings"},      {H5T_VLEN, "arrays of variable length"},
      {H5T_COMPOUND, "records"},    {H5T_ARRAY, "arrays"},
      {H5T_ENUM, "enumeration"},    {H5T_OPAQUE, "opaque bytes"},
      {H5T_REFERENCE, "references"}};
  const auto* const other = std::ranges::find(kOthers, h5().H5Tget_class(type),
                                              &std::pair<H5T_class_t, const char*>::first);
  std::string text = other == std::end(kOthers) ? to_string(array.type) : other->second;
  for (std::size_t i = 0; i < array.shape.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? " [" : ",", array.shape[i]);
  }
  return array.shape.empty() ? text : text + "]";
}

struct Offer {
  std::string name, type;
  values::NumpyArray array;
};

std::vector<Offer> list_sets(const File& file) {
  std::vector<std::string> names;
  // The type of `object` has another name since HDF5 1.12.
  const auto visit = [](hid_t, const char* name, const auto* object, void* to) -> herr_t {
    constexpr std::size_t kMost = 1000;
    auto& found = *static_cast<std::vector<std::string>*>(to);
    if (object->type == H5O_TYPE_DATASET) found.emplace_back(name);
    return found.size() < kMost ? 0 : 1;
  };
  check(h5().H5Ovisit2(file, H5_INDEX_NAME, H5_ITER_NATIVE, visit, &names, H5O_INFO_BASIC), "list");
  std::vector<Offer> sets;
  for (std::string& name : names) {
    const Set set(h5().H5Dopen2(file, name.c_str(), H5P_DEFAULT), "data set");
    const values::NumpyArray array = describe(set);
    const Type type(h5().H5Dget_type(set), "type");
    sets.push_back({std::move(name), text_of(type, array), array});
  }
  return sets;
}

/// The images and labels of a file, which is open as long as this object.
struct Sets {
  File file;
  std::vector<Offer> all;
  const Offer *images, *labels;

  Sets(const std::string& path, const Options& options)
      : file(h5().H5Fopen(path.c_str(), H5F_ACC_RDONLY, Properties(make_access(), "access")),
             "beginning, length or superblock is damaged; it"),
        all(list_sets(file)) {
    const auto holds_images = [](const values::NumpyArray& array) {
      return array.type == values::NumpyType{} && array.shape.size() >= 3;
    };
    const auto holds_labels = [](const values::NumpyArray& array) {
      return array.type.kind != 'f' && array.type.bytes <= 8 && !array.shape.empty() &&
             std::all_of(array.shape.begin() + 1, array.shape.end(),
                         [](std::int64_t length) { return length == 1; });
    };
    images = &choose_array(all, options, "hdf5:image", holds_images, kUsualImageSets);
    labels = &choose_array(all, options, "hdf5:label", holds_labels, kUsualLabelSets);
  }
};

/// Where the data of a set begin, if they lie in one piece.
std::optional<std::uint64_t> offset_of(const Set& set) {
  const Properties properties(h5().H5Dget_create_plist(set), "storage");
  const H5D_layout_t layout = h5().H5Pget_layout(properties);
  if ((layout != H5D_CONTIGUOUS && layout != H5D_CHUNKED && layout != H5D_COMPACT) ||
      h5().H5Pget_external_count(properties) != 0) {
    throw DataError("an HDF5 file whose data are stored in other files; expected them in it");
  }
  const haddr_t offset = layout == H5D_CONTIGUOUS ? h5().H5Dget_offset(set) : HADDR_UNDEF;
  if (offset == HADDR_UNDEF) return std::nullopt;
  return offset;
}

/// Reads a data set as numbers of `type`, of `bytes` each.
std::vector<std::byte> read(const File& file, const Offer& offer, hid_t type, std::uint8_t bytes) {
  const auto size = values::numpy_bytes({.kind = 'u', .bytes = bytes}, offer.array.shape);
  if (!size || *size > available_memory() / 2) {
    throw ConfigError(
        "the data set '{}' of an HDF5 file is larger than half of the available memory, and has to "
        "be read as a whole, since it is chunked; expected less; free memory, or write it in one "
        "piece with h5repack -l CONTI",
        offer.name);
  }
  const Set set(h5().H5Dopen2(file, offer.name.c_str(), H5P_DEFAULT), "data set");
  static_cast<void>(offset_of(set));  // refuses data in other files
  std::vector<std::byte> content(static_cast<std::size_t>(*size));
  check(h5().H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, content.data()), "data");
  return content;
}

class PixelFiles final : public ImageArrayFormat {
 public:
  PixelFiles(PixelLayout layout, const Options& options)
      : ImageArrayFormat(layout, options), options_(options) {}

  MappedFile map(const std::string& path) override {
    const auto lock = lock_library();
    const Sets sets(path, options_);
    Found& found = found_[path];
    found.shape = sets.images->array.shape;
    found.labels = read(sets.file, *sets.labels, h5().native_int64, 8);
    found.label_shape = sets.labels->array.shape;
    const Set set(h5().H5Dopen2(sets.file, sets.images->name.c_str(), H5P_DEFAULT), "data set");
    const std::optional<std::uint64_t> offset = offset_of(set);
    if (!offset) return {path, read(sets.file, *sets.images, h5().native_uint8, 1)};
    found.offset = *offset;
    return MappedFile(path);
  }

 private:
  struct Found {
    std::vector<std::int64_t> shape, label_shape;
    std::vector<std::byte> labels;  // as int64
    std::uint64_t offset = 0;       // of the images
  };

  ImageArrays find(const MappedFile& shard) const override {
    const Found& found = found_.at(shard.path());
    const std::uint64_t begin = std::min<std::uint64_t>(found.offset, shard.bytes().size()),
                        bytes = values::numpy_bytes({}, found.shape).value_or(0);
    const std::span<const std::byte> rest = shard.bytes().subspan(begin);
    return {.images = {.shape = found.shape,
                       .data = rest.first(std::min<std::uint64_t>(bytes, rest.size()))},
            .labels = {.type = {.kind = 'i', .bytes = 8},
                       .shape = found.label_shape,
                       .data = found.labels},
            .label_path = shard.path()};
  }

  const Options options_;
  std::map<std::string, Found> found_;  // by path
};

/// The layout of the first file that can be read.
PixelLayout probe(const FileList& files, const Options& options) {
  std::string problem;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string path = files.path(i);
    const MappedFile exists(path);
    try {
      const auto lock = lock_library();
      return layout_of_images(path, Sets(path, options).images->array, options);
    } catch (const DataError& error) {
      problem = error.what();
    }
  }
  refuse_arrays(files.path(0), "cannot be used: " + problem);
}

bool is_hdf5(std::string_view name) { return name.ends_with(".h5") || name.ends_with(".hdf5"); }

std::unique_ptr<Source> make(const DataPlan& plan, const Options& options) {
  FileList files = list_shards(plan, is_hdf5, "HDF5", "train.h5");
  const PixelLayout layout = probe(files, options);
  return make_record_source(plan, std::move(files), std::make_unique<PixelFiles>(layout, options));
}

// ---- writer -----------------------------------------------------------------

/// One file with the data sets image and label, in one piece each.
class Hdf5Writer final : public DatasetWriter {
 public:
  explicit Hdf5Writer(const WriterPlan& plan) : plan_(plan), path_(plan.directory + "/train.h5") {
    labels_.reserve(plan.samples);
    const auto lock = lock_library();
    attempt([&] {
      file_.emplace(h5().H5Fcreate(path_.c_str(), H5F_ACC_EXCL, H5P_DEFAULT,
                                   Properties(make_access(), "access")),
                    "beginning");
      const auto side = static_cast<hsize_t>(plan.image_size);
      const hsize_t lengths[] = {plan.samples, side, side, 3};
      const Space space(h5().H5Screate_simple(4, lengths, nullptr), "shape");
      images_.emplace(make_set("image", h5().uint8, space), "images");
    });
  }
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;
  ~Hdf5Writer() override {
    const auto lock = lock_library();
    images_.reset();
    file_.reset();
  }

  void add(std::span<const std::byte> image, std::int32_t label) override {
    const auto lock = lock_library();
    attempt([&] {
      const auto side = static_cast<hsize_t>(plan_.image_size);
      const hsize_t begin[] = {labels_.size(), 0, 0, 0}, count[] = {1, side, side, 3};
      const Space there(h5().H5Dget_space(*images_), "shape"),
          here(h5().H5Screate_simple(4, count, nullptr), "shape");
      check(h5().H5Sselect_hyperslab(there, H5S_SELECT_SET, begin, nullptr, count, nullptr),
            "image");
      check(h5().H5Dwrite(*images_, h5().native_uint8, here, there, H5P_DEFAULT, image.data()),
            "image");
    });
    labels_.push_back(label);
  }

  void finish() override {
    const auto lock = lock_library();
    attempt([&] {
      const hsize_t count[] = {labels_.size()};
      const Space space(h5().H5Screate_simple(1, count, nullptr), "shape");
      const Set set(make_set("label", h5().int64, space), "labels");
      check(h5().H5Dwrite(set, h5().native_int64, H5S_ALL, H5S_ALL, H5P_DEFAULT, labels_.data()),
            "labels");
      check(h5().H5Fflush(*file_, H5F_SCOPE_GLOBAL), "end");
    });
  }

 private:
  hid_t make_set(const char* name, hid_t type, hid_t space) const {
    return h5().H5Dcreate2(*file_, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  }

  template <typename Step>
  void attempt(const Step& step) const {
    try {
      step();
    } catch (const DataError&) {
      throw ConfigError("cannot write '{}'; make room or choose another folder with --out", path_);
    }
  }

  const WriterPlan plan_;
  const std::string path_;
  std::optional<File> file_;
  std::optional<Set> images_;
  std::vector<std::int64_t> labels_;
};

}  // namespace

extern constinit const SourceEntry hdf5_source{
    .name = "hdf5",
    .summary = "pixels in HDF5 files, as of tensorpack's HDF5Serializer",
    .options = kOptions,
    .make = make,
    .detects = is_hdf5,
};

extern constinit const DatasetWriterEntry hdf5_dataset_writer{
    .name = "hdf5",
    .summary = "an HDF5 file of pixels: the centre of each image, at --image-size",
    .image_size = 224,
    .shards = 1,
    .make = make_writer<Hdf5Writer>,
};

}  // namespace penstock::datasets
