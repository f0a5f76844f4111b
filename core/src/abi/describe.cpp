// SPDX-License-Identifier: Apache-2.0
#include "support/describe.hpp"

#include "abi/handles.hpp"

using namespace datapath;

dp_status dp_describe(int32_t probe_devices, char** json)
{
  return guard(
    [&] { result_place(json, "the JSON text") = give_string(describe(probe_devices != 0)); });
}
