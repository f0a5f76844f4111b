// SPDX-License-Identifier: Apache-2.0
/// @file
/// Everything of the library for C++: RAII over the C ABI, header-only, so that no C++ type crosses it.
#pragma once

#include <datapath/device.hpp>
#include <datapath/error.hpp>
#include <datapath/handle.hpp>
#include <datapath/io.hpp>
#include <datapath/memory.hpp>
#include <datapath/scheduler.hpp>
#include <datapath/settings.hpp>
#include <datapath/ticket.hpp>
