// SPDX-License-Identifier: Apache-2.0
#include "bindings.hpp"
#include "bindings_update.hpp"
#include "gather_cpu.hpp"
#include "gather_emulated.hpp"
#include "rmat.hpp"
#include "scatter_add_cpu.hpp"

#include <map>
#include <stdexcept>
#include <string>

namespace py = pybind11;

namespace pytorch_direct {
namespace {

std::int64_t gather(Address table,
                    std::int64_t rows,
                    std::int64_t stride,
                    Sizes const& sizes,
                    Sizes const& strides,
                    std::int64_t element_bytes,
                    Address ids,
                    bool ids_are_64_bit,
                    std::int64_t count,
                    bool wrap,
                    Address out,
                    int threads)
{
  CpuTable const source{bytes_at(table), rows, stride, row_layout(sizes, strides, element_bytes)};
  CpuIds const list{bytes_at(ids), ids_are_64_bit, count, wrap};
  GilReleased const released;
  return gather_cpu(source, list, bytes_at(out), threads);
}

std::int64_t scatter_add(Address table,
                         std::int64_t rows,
                         std::int64_t row_numbers,
                         Address ids,
                         bool ids_are_64_bit,
                         std::int64_t count,
                         Address added,
                         std::string const& number,
                         int threads)
{
  ScatterArguments const arguments{
    bytes_at(table), rows, row_numbers, bytes_at(ids), ids_are_64_bit, count, bytes_at(added)};
  auto const type = number_of(number);
  if (type != Number::float32 && type != Number::float64 && type != Number::int32 &&
      type != Number::int64) {
    throw std::invalid_argument("scatter_add: no kernel for " + number);
  }
  GilReleased const released;
  return scatter_add_cpu(arguments, type, threads);
}

/// Gives (form, bad position or -1), so that the tests see which path was taken.
py::tuple emulate(Address table,
                  std::int64_t rows,
                  std::int64_t stride,
                  Sizes const& sizes,
                  Sizes const& strides,
                  std::int64_t element_bytes,
                  Address ids,
                  std::string const& id_kind,
                  std::int64_t count,
                  bool wrap,
                  bool merge,
                  Address positions,
                  Address out,
                  std::int64_t threads)
{
  auto const row = row_layout(sizes, strides, element_bytes);
  BadIdSlot slot{};
  GatherArguments const arguments{bytes_at(table),
                                  rows,
                                  stride,
                                  row.row_bytes,
                                  bytes_at(ids),
                                  count,
                                  reinterpret_cast<std::uint32_t const*>(bytes_at(positions)),
                                  bytes_at(out),
                                  id_kind == "int32"   ? IdKind::int32
                                  : id_kind == "int64" ? IdKind::int64
                                                       : IdKind::key,
                                  wrap,
                                  {&slot, nullptr, nullptr, 0},
                                  merge};
  auto const path = choose_path(arguments, row, element_bytes);
  gather_emulated(arguments, path, row, element_bytes, threads);
  char const* const forms[] = {"direct", "line", "strided"};
  auto const bad = slot.worst == 0 ? std::int64_t{-1} : static_cast<std::int64_t>(~slot.worst);
  return py::make_tuple(forms[static_cast<int>(path.form)], path.width, bad);
}

Cast cast_of(std::string const& name)
{
  static std::map<std::string, Cast> const known{{"float64", Cast::float64},
                                                 {"float32", Cast::float32},
                                                 {"float16", Cast::float16},
                                                 {"bfloat16", Cast::bfloat16},
                                                 {"float8_e4m3fn", Cast::float8_e4m3fn},
                                                 {"float8_e5m2", Cast::float8_e5m2},
                                                 {"int8", Cast::int8},
                                                 {"uint8", Cast::uint8}};
  auto const found = known.find(name);
  if (found == known.end()) { throw std::invalid_argument("gather: no conversion of " + name); }
  return found->second;
}

void emulate_cast(Address table,
                  std::int64_t rows,
                  std::int64_t stride,
                  std::int64_t elements,
                  Address ids,
                  std::string const& id_kind,
                  std::int64_t count,
                  bool merge,
                  Address out,
                  std::int64_t out_element_bytes,
                  std::string const& from,
                  std::string const& to,
                  std::optional<double> factor,
                  Address row_factor,
                  std::int64_t threads)
{
  GatherArguments const arguments{bytes_at(table),
                                  rows,
                                  stride,
                                  elements * out_element_bytes,
                                  bytes_at(ids),
                                  count,
                                  nullptr,
                                  bytes_at(out),
                                  id_kind == "int64" ? IdKind::int64 : IdKind::key,
                                  false,
                                  {},
                                  merge};
  gather_cast_emulated(arguments, conversion_of(from, to, elements, factor, row_factor), threads);
}

}  // namespace

Conversion conversion_of(std::string const& from,
                         std::string const& to,
                         std::int64_t elements,
                         std::optional<double> factor,
                         Address row_factor)
{
  return {cast_of(from),
          cast_of(to),
          elements,
          factor.has_value() || row_factor != 0,
          static_cast<float>(factor.value_or(1)),
          reinterpret_cast<float const*>(bytes_at(row_factor))};
}

void bind_cpu(py::module_& module)
{
  module.def("gather_cpu", &gather);
  module.def("scatter_add_cpu", &scatter_add);
  module.def(
    "emulate_gather", &emulate, "Run the GPU's gather kernel thread by thread on the host.");
  module.def(
    "emulate_cast", &emulate_cast, "Run the GPU's converting gather thread by thread on the host.");
  module.def("rmat_edges",
             [](std::int64_t nodes,
                std::int64_t first,
                std::int64_t count,
                std::uint64_t seed,
                double a,
                double b,
                double c,
                bool scramble,
                Address sources,
                Address destinations,
                int threads) {
               GilReleased const released;
               rmat_edges(nodes,
                          first,
                          count,
                          seed,
                          {a, b, c, scramble},
                          reinterpret_cast<std::int64_t*>(bytes_at(sources)),
                          reinterpret_cast<std::int64_t*>(bytes_at(destinations)),
                          threads);
             });
  module.def(
    "uniform_features",
    [](std::int64_t first, std::int64_t count, std::uint64_t seed, Address out, int threads) {
      GilReleased const released;
      uniform_features(first, count, seed, reinterpret_cast<float*>(bytes_at(out)), threads);
    });
}

}  // namespace pytorch_direct
