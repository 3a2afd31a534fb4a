#include "rendezvous/daemon/rendezvousd_options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/command_line.h"
#include "base/endpoint.h"
#include "base/secret.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "rendezvous/http/http_message.h"
#include "rendezvous/wire/credential_files.h"

namespace ddprun::rendezvous {
namespace {

constexpr size_t kMaxConfigBytes = 1 << 20;

void AddServerOptions(CLI::App& app, RendezvousdOptions* options) {
  app.add_option("--listen", options->listen,
                 "ADDRESS:PORT to listen on (repeatable); IPv6 in brackets, port 0 picks a free port")
      ->type_name("ADDRESS:PORT")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->check([](const std::string& text) { return std::string(ParseEndpoint(text).status().message()); })
      ->capture_default_str();
  app.add_option("--log-level", options->log_level, "Minimum level to log to stderr")
      ->check(CLI::IsMember({"DEBUG", "INFO", "WARNING", "ERROR"}, CLI::ignore_case))
      ->capture_default_str();
  app.add_option("--state-dir", options->state_dir,
                 "Directory for job state; a restarted server resumes rounds, restart counts and verdicts from it")
      ->type_name("DIR");
}

void AddCredentialOptions(CLI::App& app, Credentials* credentials) {
  app.add_option("--token-file", credentials->token_file,
                 "File with the accepted tokens, one per line (also DDPRUN_TOKEN_FILE, or the token itself in "
                 "DDPRUN_TOKEN)")
      ->type_name("FILE");
  app.add_option("--tls-cert", credentials->tls_cert, "PEM certificate chain of this server")->type_name("FILE");
  app.add_option("--tls-key", credentials->tls_key, "PEM private key of --tls-cert")->type_name("FILE");
  app.add_option("--tls-ca", credentials->tls_ca,
                 "PEM CA certificate; launchers must present a certificate signed by it")
      ->type_name("FILE");
  app.add_option("--tls-allowed-names", credentials->tls_allowed_names,
                 "Accept only launchers whose certificate has one of these names")
      ->type_name("NAME,...")
      ->allow_extra_args(false)
      ->delimiter(',');
}

void AddHttpOptions(CLI::App& app, RendezvousdOptions* options) {
  app.add_option("--http", options->http,
                 "ADDRESS:PORT on which to serve the web page, the API and /metrics over HTTP (with --tls-cert: HTTPS)")
      ->type_name("ADDRESS:PORT")
      ->check([](const std::string& text) { return std::string(ParseEndpoint(text).status().message()); });
  app.add_flag("--http-open", options->http_open,
               "Without a token, let --http listen on more than the loopback: everyone who reaches it can read it");
}

void AddEtcdOptions(CLI::App& app, EtcdFlags* etcd) {
  const auto is_host_port = [](const std::string& text) { return std::string(ParseEndpoint(text).status().message()); };
  app.add_option("--etcd", etcd->endpoints,
                 "Members of the etcd with which several servers share job state; one of them leads at a time")
      ->type_name("HOST:PORT,...")
      ->allow_extra_args(false)
      ->delimiter(',')
      ->check(is_host_port);
  app.add_option("--etcd-prefix", etcd->prefix, "Prefix of the keys in etcd of this group of servers")
      ->type_name("PREFIX")
      ->capture_default_str();
  app.add_option("--etcd-cacert", etcd->cacert, "PEM CA certificate of etcd; connections use TLS")->type_name("FILE");
  app.add_option("--etcd-cert", etcd->cert, "PEM client certificate for etcd")->type_name("FILE");
  app.add_option("--etcd-key", etcd->key, "PEM private key of --etcd-cert")->type_name("FILE");
  app.add_option("--advertise", etcd->advertise,
                 "HOST:PORT at which launchers reach this server; with --etcd (default: the first --listen)")
      ->type_name("HOST:PORT")
      ->check(is_host_port);
  app.add_option("--lease-ttl", etcd->lease_ttl_s,
                 "Seconds until another server takes over from a failed leader; with --etcd")
      ->type_name("SECONDS")
      ->check(CLI::Range(2, 60))
      ->capture_default_str();
}

void AddConfigOptions(CLI::App& app, RendezvousdOptions* options) {
  app.add_option("--config", options->config_file,
                 "File of options, one 'NAME = VALUE' per line without the dashes; flags override it")
      ->type_name("FILE")
      ->configurable(false);
  app.add_flag("--check-config", options->check_config,
               "Check flags, configuration file and credentials, and exit (0: valid, 2: not)")
      ->configurable(false);
}

// The advertised address must be reachable for launchers.
absl::Status CheckAdvertised(const RendezvousdOptions& options) {
  const bool given = !options.etcd.advertise.empty();
  DDPRUN_ASSIGN_OR_RETURN(const Endpoint address,
                          ParseEndpoint(given ? options.etcd.advertise : options.listen.front()));
  if (address.host == "0.0.0.0" || address.host == "::") {
    return absl::InvalidArgumentError(absl::StrCat("launchers can't reach ", address.ToString(),
                                                   ": give --advertise=HOST:PORT with this host's name or address"));
  }
  if (given && address.port == 0) {
    return absl::InvalidArgumentError("--advertise needs the port at which launchers reach this server");
  }
  return absl::OkStatus();
}

absl::Status CheckEtcd(const RendezvousdOptions& options) {
  if (options.etcd.endpoints.empty()) {
    if (options.etcd.advertise.empty() && options.etcd.cacert.empty() && options.etcd.cert.empty()) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError("--advertise, --etcd-cacert and --etcd-cert require --etcd");
  }
  if (!options.state_dir.empty()) {
    return absl::InvalidArgumentError("--state-dir and --etcd are mutually exclusive: job state has one store");
  }
  if (!options.etcd.user.empty() && options.etcd.user.find(':') == std::string::npos) {
    return absl::InvalidArgumentError("DDPRUN_ETCD_USER must be NAME:PASSWORD");
  }
  return CheckAdvertised(options);
}

absl::StatusOr<std::string> ReadConfig(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat("can't read --config ", path, ": Is a directory"));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) return absl::InvalidArgumentError(absl::StrCat("can't read --config ", path, ": ", strerror(errno)));
  if (text.size() > kMaxConfigBytes) return absl::InvalidArgumentError(absl::StrCat(path, " is larger than 1 MiB"));
  return text;
}

// Sets an option from the file, unless a flag has set it.
absl::Status ApplyEntry(const ConfigEntry& entry, CLI::App& app) {
  CLI::Option* option = app.get_option_no_throw(absl::StrCat("--", entry.key));
  if (option == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("unknown option '", entry.key, "' (see rendezvousd --help)"));
  }
  if (!option->get_configurable()) {
    return absl::InvalidArgumentError(absl::StrCat("'", entry.key, "' is valid on the command line only"));
  }
  const bool is_switch = option->get_expected_min() == 0;
  if (is_switch && entry.values != std::vector<std::string>{"true"} &&
      entry.values != std::vector<std::string>{"false"}) {
    return absl::InvalidArgumentError(absl::StrCat("'", entry.key, "' must be true or false"));
  }
  if (option->count() > 0) return absl::OkStatus();
  return CatchCliErrors([&] {
    option->add_result(entry.values);
    option->run_callback();
  });
}

absl::Status ApplyConfig(const std::string& path, CLI::App& app) {
  DDPRUN_ASSIGN_OR_RETURN(const std::string text, ReadConfig(path));
  const absl::StatusOr<std::vector<ConfigEntry>> entries = ParseConfigText(text);
  if (!entries.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ":", entries.status().message()));
  for (const ConfigEntry& entry : *entries) {
    if (absl::Status status = ApplyEntry(entry, app); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ":", entry.line, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

// Checks that the folder, which does not exist, can be created.
absl::Status CheckStateDirCreatable(const std::string& path) {
  std::filesystem::path entry(path);
  if (!entry.has_filename()) entry = entry.parent_path();  // it ended with a slash
  std::string folder = entry.parent_path().string();
  if (folder.empty()) folder = ".";
  const auto error = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("--state-dir ", path, what));
  };
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    return error(absl::StrCat(": there is no directory ", folder, "; create it"));
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    return error(absl::StrCat(": can't create it in ", folder, ": ", strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status CheckStateDir(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return CheckStateDirCreatable(path);
  if (!std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat("--state-dir ", path, " is not a directory"));
  }
  if (access(path.c_str(), R_OK | W_OK | X_OK) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--state-dir ", path, ": ", strerror(errno)));
  }
  return absl::OkStatus();
}

// Refuses to serve HTTP to the whole network without a token, unless that is explicitly allowed.
absl::Status CheckHttp(const RendezvousdOptions& options) {
  const absl::StatusOr<Endpoint> address = ParseEndpoint(options.http);
  if (options.http.empty() || options.http_open || options.credentials.has_token() || !address.ok() ||
      http::NamesLoopback(address->ToString())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--http ", options.http, " would let everyone read the jobs: configure a token (--token-file), listen ",
      "on 127.0.0.1, or add --http-open to allow it"));
}

// Reads the text from its beginning to its end, once.
class Parser {
 public:
  explicit Parser(absl::string_view text) : rest_(text) {}

  absl::StatusOr<std::vector<ConfigEntry>> Run() {
    std::vector<ConfigEntry> entries;
    while (SkipToText()) {
      DDPRUN_ASSIGN_OR_RETURN(ConfigEntry entry, ReadEntry());
      for (const ConfigEntry& earlier : entries) {
        if (earlier.key != entry.key) continue;
        return Error(entry.line, absl::StrCat("'", entry.key, "' is already set in line ", earlier.line));
      }
      entries.push_back(std::move(entry));
    }
    return entries;
  }

 private:
  static bool InWord(char c) {
    return absl::ascii_isgraph(c) && absl::string_view("#,[]\"'=").find(c) == std::string::npos;
  }

  static absl::Status Error(int line, absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(line, ": ", what));
  }
  absl::Status Error(absl::string_view what) const { return Error(line_, what); }

  char Next() const { return rest_.empty() ? '\0' : rest_.front(); }
  void Skip() {
    if (Next() == '\n') ++line_;
    rest_.remove_prefix(1);
  }
  void SkipBlanks() {
    while (Next() == ' ' || Next() == '\t' || Next() == '\r') Skip();
    if (Next() != '#') return;
    while (!rest_.empty() && Next() != '\n') Skip();
  }
  // Over blanks, comments and line ends; false at the end of the text.
  bool SkipToText() {
    for (SkipBlanks(); Next() == '\n'; SkipBlanks()) Skip();
    return !rest_.empty();
  }

  absl::StatusOr<ConfigEntry> ReadEntry() {
    if (Next() == '[') return Error("sections are not supported; write KEY = VALUE lines only");
    ConfigEntry entry;
    entry.line = line_;
    while (absl::ascii_isalnum(Next()) || Next() == '-' || Next() == '_') {
      entry.key.push_back(Next());
      Skip();
    }
    SkipBlanks();
    if (entry.key.empty() || Next() != '=') return Error("expected KEY = VALUE");
    Skip();
    SkipBlanks();
    DDPRUN_RETURN_IF_ERROR(Next() == '[' ? ReadList(&entry.values) : ReadValue(&entry.values));
    SkipBlanks();
    if (!rest_.empty() && Next() != '\n') {
      return Error(absl::StrCat("unexpected text after the value of '", entry.key,
                                "'; quote a value with spaces or special characters"));
    }
    return entry;
  }

  absl::Status ReadList(std::vector<std::string>* values) {
    const int begin = line_;
    const absl::Status open = Error(begin, "the list has no closing ']'");
    Skip();
    while (SkipToText() && Next() != ']') {
      DDPRUN_RETURN_IF_ERROR(ReadValue(values));
      if (!SkipToText()) return open;
      if (Next() == ',') {
        Skip();
      } else if (Next() != ']') {
        return Error("expected ',' or ']' in the list");
      }
    }
    if (rest_.empty()) return open;
    Skip();
    if (values->empty()) return Error(begin, "the list is empty");
    return absl::OkStatus();
  }

  absl::Status ReadValue(std::vector<std::string>* values) {
    std::string value;
    const char quote = Next();
    if (quote == '"' || quote == '\'') {
      Skip();
      while (Next() != quote) {
        if (rest_.empty() || Next() == '\n') return Error(absl::StrCat("no closing ", std::string(1, quote)));
        if (quote == '"' && Next() == '\\') {
          Skip();
          if (Next() != '"' && Next() != '\\')
            return Error("only \\\" and \\\\ may follow a backslash in double quotes");
        }
        value.push_back(Next());
        Skip();
      }
      Skip();
    } else {
      for (; InWord(Next()); Skip()) value.push_back(Next());
      if (value.empty()) return Error("expected a value");
    }
    values->push_back(std::move(value));
    return absl::OkStatus();
  }

  absl::string_view rest_;
  int line_ = 1;
};

}  // namespace

absl::StatusOr<RendezvousdCommandLine> ParseRendezvousdOptions(const std::vector<std::string>& arguments) {
  RendezvousdCommandLine line;
  CLI::App app("Rendezvous server for ddprun: assigns rounds, ranks and the master address, for any number of jobs.",
               "rendezvousd");
  AddServerOptions(app, &line.options);
  AddCredentialOptions(app, &line.options.credentials);
  AddHttpOptions(app, &line.options);
  AddEtcdOptions(app, &line.options.etcd);
  AddConfigOptions(app, &line.options);
  RepairValues(app);
  app.set_version_flag("--version", absl::StrCat("rendezvousd ", kVersion));
  const auto error_text = [](const CLI::Error& error) {
    return absl::StrCat(CliErrorText(error), " (see rendezvousd --help)");
  };
  DDPRUN_ASSIGN_OR_RETURN(line.answer, ParseWords(app, arguments, error_text));
  if (!line.answer.empty()) return line;
  if (!line.options.config_file.empty()) DDPRUN_RETURN_IF_ERROR(ApplyConfig(line.options.config_file, app));
  return line;
}

void TakeEtcdUserFromEnvironment(EtcdFlags* etcd) { etcd->user = TakeVariable("DDPRUN_ETCD_USER").value_or(""); }

absl::Status CheckRendezvousdOptions(const RendezvousdOptions& options, std::vector<std::string>* warnings) {
  DDPRUN_RETURN_IF_ERROR(CheckCredentials(options.credentials, CredentialSide::kServer, warnings));
  DDPRUN_RETURN_IF_ERROR(CheckHttp(options));
  DDPRUN_RETURN_IF_ERROR(CheckEtcd(options));
  return CheckStateDir(options.state_dir);
}

absl::StatusOr<std::vector<ConfigEntry>> ParseConfigText(absl::string_view text) { return Parser(text).Run(); }

}  // namespace ddprun::rendezvous
