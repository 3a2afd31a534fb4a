#include "worker_contract/error_file_json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::worker_contract {

std::string ErrorFileJson(const ReportedError& error) {
  using Json = nlohmann::json;
  Json inner;
  inner["message"] = error.message;
  if (error.error_code) inner["errorCode"] = *error.error_code;
  for (const auto& [name, value] : error.worker) inner["extraInfo"][name] = value;
  inner["extraInfo"]["py_callstack"] = error.traceback;
  inner["extraInfo"]["timestamp"] = absl::StrCat(absl::ToUnixSeconds(error.at));
  Json file;
  file["message"] = std::move(inner);
  return file.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ddprun::worker_contract
