#include "tests/security/certificates.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace ddprun::testing {
namespace {

void Check(bool fine) {
  if (!fine) abort();
}

X509* NewCertificate(EVP_PKEY* key, const std::string& name, X509* issuer, absl::Time until) {
  static long serial = 1;
  X509* cert = X509_new();
  X509_set_version(cert, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(cert), serial++);
  X509_set_pubkey(cert, key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(cert, X509_get_subject_name(issuer == nullptr ? cert : issuer));
  const time_t from = absl::ToTimeT(std::min(until, absl::Now()) - absl::Hours(1));
  ASN1_TIME_set(X509_getm_notBefore(cert), from);
  ASN1_TIME_set(X509_getm_notAfter(cert), absl::ToTimeT(until));
  return cert;
}

void Extend(X509* cert, X509* issuer, int what, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, cert, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, what, value.c_str());
  Check(extension != nullptr);
  X509_add_ext(cert, extension, -1);
  X509_EXTENSION_free(extension);
}

// Writes under another name first, so that readers see only complete files.
template <typename Write>
void WritePem(const std::string& path, Write write) {
  FILE* file = fopen((path + ".new").c_str(), "w");
  Check(file != nullptr && write(file) == 1);
  fclose(file);
  chmod((path + ".new").c_str(), 0600);
  Check(rename((path + ".new").c_str(), path.c_str()) == 0);
}

}  // namespace

std::string NewFolder(const std::string& name) {
  std::string path = std::string(getenv("TEST_TMPDIR")) + "/" + name + "XXXXXX";
  Check(mkdtemp(path.data()) != nullptr);
  return path;
}

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path + ".new") << text;
  chmod((path + ".new").c_str(), 0600);
  Check(rename((path + ".new").c_str(), path.c_str()) == 0);
}

void StallReaders(const std::string& path) {
  Check(mkfifo((path + ".fifo").c_str(), 0600) == 0);
  Check(rename((path + ".fifo").c_str(), path.c_str()) == 0);
}

struct TestCa::Impl {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* cert = nullptr;
};

TestCa::TestCa(const std::string& folder) : folder_(folder), impl_(std::make_unique<Impl>()) {
  impl_->cert = NewCertificate(impl_->key, "test CA", nullptr, absl::Now() + absl::Hours(24));
  Extend(impl_->cert, impl_->cert, NID_basic_constraints, "critical,CA:TRUE");
  Extend(impl_->cert, impl_->cert, NID_subject_key_identifier, "hash");
  Check(X509_sign(impl_->cert, impl_->key, EVP_sha256()) > 0);
  WritePem(ca(), [&](FILE* file) { return PEM_write_X509(file, impl_->cert); });
}

TestCa::~TestCa() {
  X509_free(impl_->cert);
  EVP_PKEY_free(impl_->key);
}

void TestCa::Issue(const std::string& name, const std::string& names, absl::Time until) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* cert = NewCertificate(key, name, impl_->cert, until);
  Extend(cert, impl_->cert, NID_subject_alt_name, names);
  Extend(cert, impl_->cert, NID_ext_key_usage, "serverAuth,clientAuth");
  Check(X509_sign(cert, impl_->key, EVP_sha256()) > 0);
  WritePem(this->key(name),
           [&](FILE* file) { return PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr); });
  WritePem(this->cert(name), [&](FILE* file) { return PEM_write_X509(file, cert); });
  X509_free(cert);
  EVP_PKEY_free(key);
}

}  // namespace ddprun::testing
