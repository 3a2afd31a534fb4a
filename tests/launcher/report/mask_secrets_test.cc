#include "launcher/report/mask_secrets.h"

#include <gtest/gtest.h>

#include <string>

#include "proto/hosts.pb.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {
namespace {

struct Case {
  std::string text;
  std::string masked;
};

TEST(MaskSecrets, NamedValues_AreMasked) {
  const Case cases[] = {
      {"password=hunter2", "password=***"},
      {"DB_PASSWORD: 1234 next", "DB_PASSWORD: *** next"},
      {"HF_TOKEN=abcdefgh;x", "HF_TOKEN=***;x"},
      {"{\"api_key\": \"a b c\", \"x\": 1}", "{\"api_key\": \"***\", \"x\": 1}"},
      {"{'wandb_api_key': '0123456789abcdef'}", "{'wandb_api_key': '***'}"},
      {"body {\\\"secret\\\": \\\"abc\\\"}", "body {\\\"secret\\\": \\\"***\\\"}"},
      {"body {\\\"secret\\\": \\\"a\\nbc\\\"}", "body {\\\"secret\\\": \\\"***\\\"}"},
      {"{\"private_key\": \"-----BEGIN\\nMII\\\"\\n\", \"x\": 1}", "{\"private_key\": \"***\", \"x\": 1}"},
      {"secret='abc\\", "secret='***"},
      {"run --api-key abc --lr 3", "run --api-key *** --lr 3"},
      {"aws_secret_access_key = abc/def+ghi", "aws_secret_access_key = ***"},
      {"GET /?X-Amz-Signature=0a1b&x=1", "GET /?X-Amz-Signature=***&x=1"},
      {"Authorization: Bearer abc.def", "Authorization: Bearer ***"},
      {"authorization: Basic dTpw\nnext", "authorization: Basic ***\nnext"},
      {"{'Authorization': 'Bearer abc def'}", "{'Authorization': 'Bearer ***'}"},
      {"sent Bearer 0123abcdef to it", "sent Bearer *** to it"},
      {"token: 0123abcd9", "token: ***"},
  };
  for (const Case& c : cases) EXPECT_EQ(MaskSecrets(c.text), c.masked);
}

TEST(MaskSecrets, KnownShapes_AreMasked) {
  const std::string rest = "abcdefghijABCDEFGHIJ0123456789abcdef";
  for (const std::string prefix : {"AKIA", "ghp_", "github_pat_", "glpat-", "hf_", "sk-", "npm_", "AIza", "xoxb-"}) {
    EXPECT_EQ(MaskSecrets("got " + prefix + rest + "!"), "got ***!") << prefix;
    EXPECT_EQ(MaskSecrets("got " + prefix + "abc!"), "got " + prefix + "abc!") << prefix;
  }
  EXPECT_EQ(MaskSecrets("jwt eyJabc.eyJdef.sig-_9"), "jwt ***");
  EXPECT_EQ(MaskSecrets("https://hooks.slack.com/services/T0/B0/abc failed"),
            "https://hooks.slack.com/services/*** failed");
  EXPECT_EQ(MaskSecrets("redis://me:pass@word@db:6379/0"), "redis://me:***@db:6379/0");
  EXPECT_EQ(MaskSecrets("-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nx"),
            "-----BEGIN ***-----END RSA PRIVATE KEY-----\nx");
  EXPECT_EQ(MaskSecrets("-----BEGIN PRIVATE KEY-----\nMII"), "-----BEGIN ***");
  EXPECT_EQ(MaskSecrets("key-----BEGIN PRIVATE KEY-----\nMII"), "key-----BEGIN ***");
}

TEST(MaskSecrets, KeyWithoutItsFirstLines_IsMasked) {
  EXPECT_EQ(MaskSecrets("MII+/\nabc=\n-----END PRIVATE KEY-----\nx"), "***-----END PRIVATE KEY-----\nx");
  EXPECT_EQ(MaskSecrets("the key\nMII\n-----END PRIVATE KEY-----"), "the key\n***-----END PRIVATE KEY-----");
  EXPECT_EQ(MaskSecrets("{\"key\": \"MII\\nabc=\\n-----END PRIVATE KEY-----\\n\"}"),
            "{\"key\": \"***-----END PRIVATE KEY-----\\n\"}");
}

TEST(MaskSecrets, OrdinaryOutput_IsUnchanged) {
  for (const std::string text : {
           "pad_token='<pad>', eos_token=</s>, next_token=17",
           "tokens: 12345678, num_tokens=99887766, tokenizer: LlamaTokenizer",
           "SyntaxError: unexpected token: identifier",
           "login(token=os.environ[\"HF_TOKEN\"])",
           "def f(token: str, password: str = None)",
           "assert token == 3",
           "--token-file /etc/token --password-file=/x",
           "https://host:8080/a@b tcp://[::1]:29500",
           "KeyError: 'lr' in step 3 at sk-learn, hf_hub",
           "commit 0123456789abcdef0123456789abcdef01234567",
           "password=",
           "token",
           "-----BEGIN CERTIFICATE-----\nMII\n",
           "",
       }) {
    EXPECT_EQ(MaskSecrets(text), text);
  }
}

TEST(MaskSecrets, MaskedText_IsUnchanged) {
  const std::string text =
      "password=a token: 0123456789 Authorization: Bearer x --secret y {\"apikey\": \"z\"} ftp://u:p@h hf_"
      "abcdefghijklmnopqrstuvw \xff\xfe x\nM\n-----END PRIVATE KEY-----\n-----BEGIN PRIVATE KEY-----\nM\n-----END";
  const std::string once = MaskSecrets(text);
  EXPECT_NE(once, text);
  EXPECT_EQ(MaskSecrets(once), once);
}

TEST(SecretMask, ValuesOfEnvironmentAndCommandLine_MaskedWithoutTheirNames) {
  const SecretMask mask({"WANDB_API_KEY=planted-1", "HOME=/home/me", "--api-key=planted-2", "--password", "planted-3",
                         "DB_PASSWORD=planted, with words", "--api-key", "planted too",
                         "DB=db://me:planted-4@host/?access_key=planted-5"});
  EXPECT_EQ(mask.Mask("using planted-1, planted-2 and planted-3 in /home/me"), "using ***, *** and *** in /home/me");
  EXPECT_EQ(mask.Mask("as planted, with words or as planted too"), "as *** or as ***");
  EXPECT_EQ(mask.Mask("planted-4 or planted-5 at host"), "*** or *** at host");
  rendezvous::WorkerFailure failure;
  failure.set_message("planted-2");
  failure.set_traceback("password=planted-6");
  failure.set_host("A=b");
  hosts::v1::JobFailure summary;
  *summary.mutable_verdict()->mutable_first_cause() = failure;
  *summary.add_others() = failure;
  mask.Mask(&summary);
  EXPECT_EQ(summary.verdict().first_cause().message(), "***");
  EXPECT_EQ(summary.others(0).traceback(), "password=***");
  EXPECT_EQ(summary.others(0).host(), "A=b");
}

TEST(SecretMask, ValueThatIsCut_IsMasked) {
  const SecretMask mask({"API_KEY=0123456789abcdef"});
  EXPECT_EQ(mask.Mask("using 0123456789a...\nusing 01234567\n89abcdef used"), "using ***...\nusing ***\n*** used");
  EXPECT_EQ(mask.Mask("using 01234\nbcdef 0123456x"), "using 01234\nbcdef 0123456x");
}

}  // namespace
}  // namespace ddprun::launcher
