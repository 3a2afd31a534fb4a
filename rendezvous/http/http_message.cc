#include "rendezvous/http/http_message.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/socket_address.h"

namespace ddprun::http {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

absl::string_view Request::Header(absl::string_view name) const {
  for (const auto& [header, value] : headers) {
    if (header == name) return value;
  }
  return "";
}

std::string Request::Cookie(absl::string_view name) const {
  for (const auto& [header, value] : headers) {
    if (header != "cookie") continue;
    for (absl::string_view pair : absl::StrSplit(value, ';')) {
      const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(pair, absl::MaxSplits('=', 1));
      if (absl::StripAsciiWhitespace(parts.first) == name) return std::string(absl::StripAsciiWhitespace(parts.second));
    }
  }
  return "";
}

std::string Target::Query(const std::string& name) const {
  const auto it = query.find(name);
  return it == query.end() ? "" : it->second;
}

bool DecodePercent(absl::string_view text, bool form, std::string* decoded) {
  decoded->clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded->push_back(form && text[i] == '+' ? ' ' : text[i]);
      continue;
    }
    if (i + 2 >= text.size()) return false;
    const int high = HexDigit(text[i + 1]);
    const int low = HexDigit(text[i + 2]);
    if (high < 0 || low < 0) return false;
    decoded->push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return std::none_of(decoded->begin(), decoded->end(), [](char c) { return absl::ascii_iscntrl(c); });
}

bool ParseTarget(absl::string_view text, Target* target) {
  if (!absl::StartsWith(text, "/")) return false;
  const size_t mark = text.find('?');
  if (!DecodePercent(text.substr(0, mark), false, &target->path)) return false;
  target->query.clear();
  if (mark == absl::string_view::npos) return true;
  for (absl::string_view pair : absl::StrSplit(text.substr(mark + 1), '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(pair, absl::MaxSplits('=', 1));
    std::string name;
    std::string value;
    if (!DecodePercent(parts.first, true, &name) || !DecodePercent(parts.second, true, &value)) return false;
    target->query[name] = value;
  }
  return true;
}

absl::string_view ReasonPhrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 303: return "See Other";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 413: return "Content Too Large";
    case 421: return "Misdirected Request";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 503: return "Service Unavailable";
  }
  return "Error";
}

std::string FormatHead(const Response& response, bool keep_alive) {
  std::string head = absl::StrCat("HTTP/1.1 ", response.status, " ", ReasonPhrase(response.status), "\r\n",
                                  "Content-Type: ", response.type, "\r\n");
  if (response.more == nullptr) absl::StrAppend(&head, "Content-Length: ", response.body.size(), "\r\n");
  for (const auto& [name, value] : response.headers) absl::StrAppend(&head, name, ": ", value, "\r\n");
  absl::StrAppend(&head, "Connection: ", keep_alive ? "keep-alive" : "close", "\r\n\r\n");
  return head;
}

bool NamesLoopback(absl::string_view host_header) {
  if (absl::ConsumePrefix(&host_header, "[")) {
    const size_t end = host_header.find(']');
    return end != absl::string_view::npos && IsLoopbackAddress(host_header.substr(0, end));
  }
  const absl::string_view host = host_header.substr(0, host_header.find(':'));
  return absl::EqualsIgnoreCase(host, "localhost") || IsLoopbackAddress(host);
}

}  // namespace ddprun::http
