// SPDX-License-Identifier: Apache-2.0
// CURVE keys in files: written by this program, and by pyzmq, which also reads this program's
// files.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "dataflow/error.h"
#include "dataflow/net/certificate.h"
#include "dataflow/net/curve_setup.h"
#include "tests/support/python.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

class CurveCertificate : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!net::has_curve()) GTEST_SKIP() << "this libzmq was built without CURVE";
  }
  net::CertificateFiles write(const std::string& name) const {
    return net::write_certificate(net::make_curve_keys(), folder_.path(), name);
  }
  std::filesystem::path write_text(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_ / name;
    penstock::write_text(path, text);
    ::chmod(path.c_str(), 0600);
    return path;
  }
  static ::mode_t mode_of(const std::filesystem::path& path) {
    struct stat status {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0);
    return status.st_mode & 0777;
  }
  static std::string line(const std::string& name, const std::string& key) {
    return "    " + name + " = \"" + key + "\"\n";
  }

  TempFolder folder_;
};

TEST_F(CurveCertificate, IsReadAsItWasWritten) {
  const net::CurveKeys keys = net::make_curve_keys();
  const net::CertificateFiles files = net::write_certificate(keys, folder_ / "new", "alice");
  EXPECT_EQ(files.public_file, folder_ / "new/alice.key");
  EXPECT_EQ(files.secret_file, folder_ / "new/alice.key_secret");
  EXPECT_EQ(mode_of(files.secret_file), 0600U);
  EXPECT_EQ(net::read_certificate(files.public_file), keys.public_key);
  EXPECT_EQ(net::read_certificate(files.secret_file), keys.public_key);
  const net::CurveKeys read = net::read_secret_certificate(files.secret_file);
  EXPECT_EQ(read.public_key, keys.public_key);
  EXPECT_EQ(read.secret_key, keys.secret_key);
  EXPECT_FALSE(says(read_text(files.public_file), keys.secret_key));
}

TEST_F(CurveCertificate, IsNeverOverwritten) {
  const net::CertificateFiles files = write("alice");
  const std::string key = net::read_certificate(files.public_file);
  EXPECT_TRUE(says(thrown_by<ConfigError>([&] { write("alice"); }), "is not overwritten"));
  EXPECT_EQ(net::read_certificate(files.public_file), key);
  // Half a pair is neither completed nor left behind.
  std::filesystem::remove(files.secret_file);
  EXPECT_THROW(write("alice"), ConfigError);
  EXPECT_FALSE(std::filesystem::exists(files.secret_file));
}

TEST_F(CurveCertificate, AMalformedFileIsRefusedWithTheReason) {
  const net::CertificateFiles files = write("alice");
  const auto refusal = [](const auto& path) {
    return thrown_by<ConfigError>([&] { net::read_secret_certificate(path); });
  };
  EXPECT_TRUE(says(refusal(files.public_file), "ends in _secret"));
  EXPECT_TRUE(says(refusal(folder_ / "none"), "cannot be read"));
  ::chmod(files.secret_file.c_str(), 0644);
  EXPECT_TRUE(says(refusal(files.secret_file), "chmod 600"));
  const net::CurveKeys one = net::make_curve_keys(), other = net::make_curve_keys();
  const std::string both =
      line("public-key", one.public_key) + line("public-key", other.public_key);
  EXPECT_TRUE(says(refusal(write_text("mixed", line("public-key", one.public_key) +
                                                   line("secret-key", other.secret_key))),
                   "do not match"));
  EXPECT_TRUE(says(refusal(write_text("short", line("public-key", "short"))), "of 5 characters"));
  EXPECT_TRUE(says(refusal(write_text("bad", line("public-key", std::string(40, '~')))), "Z85"));
  const auto public_refusal = [](const auto& path) {
    return thrown_by<ConfigError>([&] { net::read_certificate(path); });
  };
  EXPECT_TRUE(says(public_refusal(write_text("empty", "")), "no public-key"));
  EXPECT_TRUE(says(public_refusal(write_text("two", both)), "2 public keys"));
}

TEST_F(CurveCertificate, SeveralAreReadFromAFolderOrAFile) {
  const std::string alice = net::read_certificate(write("alice").public_file);
  const std::string bob = net::read_certificate(write("bob").public_file);
  write_text(".hidden", "nothing");
  std::vector<std::string> expected{alice, bob};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(net::read_certificates(folder_.path()), expected);
  const TempFolder elsewhere;
  const std::filesystem::path both = elsewhere / "both";
  penstock::write_text(both, line("public-key", alice) + "# a comment\n" + line("public-key", bob));
  EXPECT_EQ(net::read_certificates(both), (std::vector<std::string>{alice, bob}));
  write_text("README", "what is no certificate lets nobody in silently");
  EXPECT_TRUE(
      says(thrown_by<ConfigError>([&] { net::read_certificates(folder_.path()); }), "README"));
  const TempFolder empty;
  EXPECT_TRUE(
      says(thrown_by<ConfigError>([&] { net::read_certificates(empty.path()); }), "without"));
}

TEST_F(CurveCertificate, GivesASocketItsRole) {
  const net::CertificateFiles own = write("own"), alice = write("alice"), bob = write("bob");
  EXPECT_FALSE(net::read_curve({}));
  const net::CurveSetup server =
      net::read_curve({.secret = own.secret_file, .allow = alice.public_file});
  EXPECT_EQ(server.role, net::CurveSetup::Role::server);
  EXPECT_EQ(server.admission.keys.size(), 1U);
  EXPECT_FALSE(server.admission.any);
  EXPECT_TRUE(net::read_curve({.secret = own.secret_file, .allow = "any"}).admission.any);
  const net::CurveSetup client =
      net::read_curve({.secret = own.secret_file,
                       .server_key = alice.public_file.string() + "," + bob.public_file.string()});
  EXPECT_EQ(client.role, net::CurveSetup::Role::client);
  EXPECT_EQ(client.server_keys, (std::vector<std::string>{net::read_certificate(alice.public_file),
                                                          net::read_certificate(bob.public_file)}));
  EXPECT_THROW(net::read_curve({.allow = alice.public_file}), ConfigError);
  EXPECT_THROW(net::read_curve({.secret = own.secret_file}), ConfigError);
  EXPECT_THROW(
      net::read_curve(
          {.secret = own.secret_file, .server_key = alice.public_file, .allow = alice.public_file}),
      ConfigError);
}

TEST_F(CurveCertificate, IsTheSameToPyzmq) {
  if (!python_has("zmq.auth")) GTEST_SKIP() << "no pyzmq; install python3-zmq";
  const net::CurveKeys ours = net::make_curve_keys();
  const net::CertificateFiles files = net::write_certificate(ours, folder_.path(), "ours");
  const std::string printed = run_python(
      "import sys, zmq.auth\n"
      "for path in sys.argv[1:3]:\n"
      "    public, secret = zmq.auth.load_certificate(path)\n"
      "    print(public.decode(), secret.decode() if secret else '-')\n"
      "print(len(zmq.auth.load_certificates(sys.argv[3])))\n"
      "zmq.auth.create_certificates(sys.argv[3], 'theirs')\n",
      {files.public_file, files.secret_file, folder_.path()});
  EXPECT_EQ(printed, ours.public_key + " -\n" + ours.public_key + " " + ours.secret_key + "\n1\n");
  const std::filesystem::path theirs = folder_ / "theirs.key_secret";
  ::chmod(theirs.c_str(), 0600);
  EXPECT_EQ(net::read_certificate(folder_ / "theirs.key"),
            net::read_secret_certificate(theirs).public_key);
  EXPECT_EQ(net::read_certificates(folder_.path()).size(), 2U);
}

}  // namespace
}  // namespace penstock
