// SPDX-License-Identifier: Apache-2.0
// An LMDB database of encoded images, under the keys "00000000", "00000001", ...: Caffe's Datum
// messages, or datapoints as tensorpack's LMDBSerializer writes them, with the list of keys under
// "__keys__".
//
//   Datum := data (4): bytes, label (5): whole number, encoded (7): 1
#include <fmt/format.h>
#include <lmdb.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <protozero/pbf_writer.hpp>

#include "dataflow/datasets/datapoint.h"
#include "dataflow/datasets/dataset_writer.h"
#include "dataflow/error.h"

namespace penstock::datasets {
namespace {

constexpr OptionSpec kOptions[] = {
    {"format", "datum", "format of values: datum (Caffe) or datapoint (tensorpack)"},
    kDumpsOption,
};

/// The largest size of the database; the file has only the pages in use.
constexpr std::size_t kMapBytes = std::size_t{1} << 40;
/// If the address space has no gap of that size, smaller maps are tried, down to this one.
constexpr std::size_t kLeastMapBytes = std::size_t{1} << 32;
constexpr std::uint64_t kSamplesATransaction = 1000;

class LmdbWriter final : public DatasetWriter {
 public:
  LmdbWriter(const WriterPlan& plan, const Options& options)
      : directory_(plan.directory), dumps_(dumps_of(options, "format", "datum")) {
    std::size_t bytes = kMapBytes;
    int result = open(bytes);
    while (result == ENOMEM && bytes > kLeastMapBytes) result = open(bytes /= 2);
    check(result);
  }

  void add(std::span<const std::byte> image, std::int32_t label) override {
    if (!transaction_) begin();
    put(fmt::format("{:08}", samples_),
        dumps_ ? values::dump_datapoint(*dumps_, image, label) : datum_of(image, label));
    if (++samples_ % kSamplesATransaction == 0) commit();
  }
  void finish() override {
    if (dumps_) {
      if (!transaction_) begin();
      put("__keys__", values::dump_keys(*dumps_, samples_));
    }
    if (transaction_) commit();
    check(mdb_env_sync(environment_.get(), 1));
    environment_.reset();
  }

 private:
  static std::string datum_of(std::span<const std::byte> image, std::int32_t label) {
    std::string datum;
    protozero::pbf_writer fields(datum);
    fields.add_bytes(4, reinterpret_cast<const char*>(image.data()), image.size());
    fields.add_int32(5, label);
    fields.add_bool(7, true);
    return datum;
  }
  void put(std::string key, std::string value) {
    MDB_val name{key.size(), key.data()}, content{value.size(), value.data()};
    check(mdb_put(transaction_.get(), table_, &name, &content, MDB_APPEND));
  }
  int open(std::size_t map_bytes) {
    MDB_env* environment = nullptr;
    if (const int result = mdb_env_create(&environment); result != 0) return result;
    environment_.reset(environment);
    if (const int result = mdb_env_set_mapsize(environment, map_bytes); result != 0) return result;
    return mdb_env_open(environment, directory_.c_str(), MDB_NOLOCK | MDB_NOSYNC, 0644);
  }

  struct Close {
    void operator()(MDB_env* environment) const noexcept { mdb_env_close(environment); }
    void operator()(MDB_txn* transaction) const noexcept { mdb_txn_abort(transaction); }
  };

  void begin() {
    MDB_txn* transaction = nullptr;
    check(mdb_txn_begin(environment_.get(), nullptr, 0, &transaction));
    transaction_.reset(transaction);
    check(mdb_dbi_open(transaction, nullptr, 0, &table_));
  }
  void commit() { check(mdb_txn_commit(transaction_.release())); }
  void check(int code) const {
    if (code == 0) return;
    throw ConfigError(
        "cannot write the database in '{}': {}; make room or choose another folder with --out",
        directory_, mdb_strerror(code));
  }

  const std::string directory_;
  const std::optional<values::Dumps> dumps_;  // none: Datum messages
  std::unique_ptr<MDB_env, Close> environment_;
  std::unique_ptr<MDB_txn, Close> transaction_;  // ends before the environment
  MDB_dbi table_ = 0;
  std::uint64_t samples_ = 0;
};

}  // namespace

extern constinit const DatasetWriterEntry lmdb_dataset_writer{
    .name = "lmdb",
    .summary = "an LMDB database of Caffe's Datum messages or of tensorpack's datapoints",
    .options = kOptions,
    .shards = 1,
    .make = make_writer<LmdbWriter>,
};

}  // namespace penstock::datasets
