// SPDX-License-Identifier: Apache-2.0
// Databases written by liblmdb: read_lmdb returns the same entries as liblmdb's cursor.
#include <gtest/gtest.h>
#include <lmdb.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "dataflow/datasets/lmdb.h"
#include "dataflow/datasets/mapped_file.h"
#include "dataflow/random.h"
#include "dataflow/values/value_at.h"
#include "tests/support/temp_folder.h"

namespace penstock {
namespace {

void require(int result) {
  if (result != MDB_SUCCESS) throw std::runtime_error(mdb_strerror(result));
}

MDB_val value_of(std::string& text) { return {text.size(), text.data()}; }

class LmdbLibraryTest : public testing::Test {
 protected:
  LmdbLibraryTest() {
    require(mdb_env_create(&environment_));
    require(mdb_env_set_mapsize(environment_, std::size_t{1} << 30));
    require(mdb_env_open(environment_, path().c_str(), MDB_NOSUBDIR | MDB_NOSYNC, 0600));
  }
  ~LmdbLibraryTest() override { mdb_env_close(environment_); }

  std::string path() const { return (folder_ / "data.mdb").string(); }

  template <typename Change>
  void write(const Change& change) {
    MDB_txn* transaction = nullptr;
    MDB_dbi database = 0;
    require(mdb_txn_begin(environment_, nullptr, 0, &transaction));
    require(mdb_dbi_open(transaction, nullptr, 0, &database));
    change(transaction, database);
    require(mdb_txn_commit(transaction));
  }

  using Pairs = std::vector<std::pair<std::string, std::string>>;
  Pairs by_library() {
    Pairs pairs;
    MDB_txn* transaction = nullptr;
    MDB_cursor* cursor = nullptr;
    require(mdb_txn_begin(environment_, nullptr, MDB_RDONLY, &transaction));
    MDB_dbi database = 0;
    require(mdb_dbi_open(transaction, nullptr, 0, &database));
    require(mdb_cursor_open(transaction, database, &cursor));
    MDB_val key{}, value{};
    while (mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == MDB_SUCCESS) {
      pairs.emplace_back(std::string(static_cast<char*>(key.mv_data), key.mv_size),
                         std::string(static_cast<char*>(value.mv_data), value.mv_size));
    }
    mdb_cursor_close(cursor);
    mdb_txn_abort(transaction);
    return pairs;
  }
  Pairs by_us() const {
    Pairs pairs;
    const datasets::MappedFile file(path());
    datasets::read_lmdb(
        file.bytes(),
        [&](const datasets::LmdbEntry& entry) {
          pairs.emplace_back(values::text_of(entry.key), values::text_of(entry.value));
          return true;
        },
        [](std::uint64_t offset) { ADD_FAILURE() << "damage at " << offset; });
    return pairs;
  }

  TempFolder folder_;
  MDB_env* environment_ = nullptr;
};

TEST_F(LmdbLibraryTest, TreesOfSeveralLevelsHaveTheLibrarysEntries) {
  EXPECT_EQ(by_us(), Pairs{});
  Random random(3);
  for (int round = 0; round < 4; ++round) {
    // Small values, values that fill pages, and values that overflow; written in random order.
    write([&](MDB_txn* transaction, MDB_dbi database) {
      for (int i = 0; i < 5000; ++i) {
        std::string key =
            std::to_string(random.below(20'000)) + std::string(random.below(200), 'k');
        const std::size_t sizes[] = {random.below(30), random.below(2000), random.below(20'000)};
        std::string value(sizes[i % 50 == 0  ? 2
                                : i % 5 == 0 ? 1
                                             : 0],
                          static_cast<char>('a' + i % 26));
        MDB_val k = value_of(key), v = value_of(value);
        require(mdb_put(transaction, database, &k, &v, 0));
      }
    });
    EXPECT_EQ(by_us(), by_library()) << round;
    // Creates holes, which the next round fills.
    Pairs pairs = by_library();
    write([&](MDB_txn* transaction, MDB_dbi database) {
      for (std::size_t i = 0; i < pairs.size(); i += 3) {
        MDB_val k = value_of(pairs[i].first);
        require(mdb_del(transaction, database, &k, nullptr));
      }
    });
    const Pairs left = by_library();
    EXPECT_GT(left.size(), 2000U);
    EXPECT_EQ(by_us(), left) << round;
  }
}

}  // namespace
}  // namespace penstock
