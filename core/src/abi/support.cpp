// SPDX-License-Identifier: Apache-2.0
#include "abi/handles.hpp"
#include "support/log.hpp"
#include "support/settings.hpp"

using namespace datapath;

void dp_last_error(dp_error_info* out)
{
  if (out == nullptr || out->size < sizeof(out->size)) { return; }
  auto const& error = last_error();
  dp_error_info info{};
  info.status      = error.status;
  info.os_errno    = error.os_errno;
  info.cuda_result = error.cuda_result;
  info.offset      = error.offset;
  info.message     = error.message.c_str();
  info.path        = error.path.empty() ? nullptr : error.path.c_str();
  info.size        = static_cast<std::uint32_t>(std::min<std::size_t>(out->size, sizeof(info)));
  std::memcpy(out, &info, info.size);
}

uint32_t dp_abi_version(void)
{ return DP_ABI_VERSION; }

char const* dp_version(void)
{ return DATAPATH_VERSION; }

void dp_string_free(char* text)
{ std::free(text); }

dp_status dp_setting_get(char const* name, char** value, char** source)
{
  return guard([&] {
    expects(name != nullptr, "the setting's name is NULL");
    auto& value_place  = result_place(value, "the value");
    auto& source_place = result_place(source, "the source");
    auto const found   = setting(name);
    auto* const text   = give_string(found.value);
    try {
      source_place = give_string(found.source);
    } catch (...) {
      std::free(text);
      throw;
    }
    value_place = text;
  });
}

dp_status dp_setting_set(char const* name, char const* value)
{
  return guard([&] {
    expects(name != nullptr, "the setting's name is NULL");
    set_setting(name, value);
  });
}

dp_status dp_settings_json(char** json)
{
  return guard([&] { result_place(json, "the JSON text") = give_string(settings_json()); });
}

dp_status dp_parse_bytes(char const* text, uint64_t* nbytes)
{
  return guard([&] {
    expects(text != nullptr, "the text is NULL");
    result_place(nbytes, "the bytes") = parse_bytes(text);
  });
}

dp_status dp_log_take(int32_t* level, char** source, char** message)
{
  return guard([&] {
    auto& level_place   = result_place(level, "the level");
    auto& source_place  = result_place(source, "the source");
    auto& message_place = result_place(message, "the message");
    level_place         = 0;
    source_place        = nullptr;
    message_place       = nullptr;
    if (auto const record = take_log_record()) {
      source_place  = give_string(record->source);
      message_place = give_string(record->message);
      level_place   = static_cast<int32_t>(record->level);
    }
  });
}
