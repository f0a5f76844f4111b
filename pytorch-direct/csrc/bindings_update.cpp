// SPDX-License-Identifier: Apache-2.0
#include "bindings_update.hpp"

#include "bindings.hpp"
#include "update_cpu.hpp"

#if PYTORCH_DIRECT_HAVE_CUDA
#include "bad_ids.hpp"
#include "update_cuda.hpp"
#endif

#include <map>
#include <stdexcept>

namespace py = pybind11;

namespace pytorch_direct {

Number number_of(std::string const& name)
{
  static std::map<std::string, Number> const known{{"float64", Number::float64},
                                                   {"float32", Number::float32},
                                                   {"float16", Number::float16},
                                                   {"bfloat16", Number::bfloat16},
                                                   {"int8", Number::int8},
                                                   {"uint8", Number::uint8},
                                                   {"int16", Number::int16},
                                                   {"int32", Number::int32},
                                                   {"int64", Number::int64}};
  auto const found = known.find(name);
  if (found == known.end()) { throw std::invalid_argument("no such number type: " + name); }
  return found->second;
}

namespace {

Rule rule_of(std::string const& name)
{
  static std::map<std::string, Rule> const known{
    {"add", Rule::add}, {"sgd", Rule::sgd}, {"adagrad", Rule::adagrad}, {"adam", Rule::adam}};
  auto const found = known.find(name);
  if (found == known.end()) { throw std::invalid_argument("no such rule: " + name); }
  return found->second;
}

/// What Python hands over: a table, entries sorted by id, what is given for them, and the rule.
struct Change {
  Address table       = 0;
  std::int64_t rows   = 0;
  std::int64_t stride = 0;
  std::int64_t width  = 0;
  Address ids         = 0;
  Address order       = 0;
  std::int64_t count  = 0;
  Address given       = 0;
  Address first       = 0;
  Address second      = 0;
  double rate         = 0;
  double epsilon      = 0;
  double first_decay  = 0;
  double second_decay = 0;
  std::string number  = {};
  std::string rule    = {};

  [[nodiscard]] UpdateArguments arguments() const
  {
    return {bytes_at(table),
            rows,
            stride,
            width,
            reinterpret_cast<std::int64_t const*>(bytes_at(ids)),
            reinterpret_cast<std::int64_t const*>(bytes_at(order)),
            count,
            bytes_at(given),
            bytes_at(first),
            bytes_at(second),
            rate,
            epsilon,
            first_decay,
            second_decay};
  }
};

#if PYTORCH_DIRECT_HAVE_CUDA
void update_on_device(Change const& change,
                      int device,
                      Address stream,
                      int max_blocks,
                      int more_blocks,
                      int cap,
                      Address unsorted_ids,
                      bool ids_are_64_bit)
{
  GatherArguments as_given{};
  if (unsorted_ids != 0) {
    as_given.rows    = change.rows;
    as_given.ids     = bytes_at(unsorted_ids);
    as_given.count   = change.count;
    as_given.id_kind = ids_are_64_bit ? IdKind::int64 : IdKind::int32;
    as_given.bad     = bad_id_sink(device, stream);
    as_given.scatter = true;
  }
  update_cuda(change.arguments(),
              as_given,
              number_of(change.number),
              rule_of(change.rule),
              {device, stream, max_blocks, more_blocks, cap});
}
#endif

}  // namespace

void bind_update(py::module_& module)
{
  py::class_<Change>(module, "Change")
    .def(py::init<>())
    .def_readwrite("table", &Change::table)
    .def_readwrite("rows", &Change::rows)
    .def_readwrite("stride", &Change::stride)
    .def_readwrite("width", &Change::width)
    .def_readwrite("ids", &Change::ids)
    .def_readwrite("order", &Change::order)
    .def_readwrite("count", &Change::count)
    .def_readwrite("given", &Change::given)
    .def_readwrite("first", &Change::first)
    .def_readwrite("second", &Change::second)
    .def_readwrite("rate", &Change::rate)
    .def_readwrite("epsilon", &Change::epsilon)
    .def_readwrite("first_decay", &Change::first_decay)
    .def_readwrite("second_decay", &Change::second_decay)
    .def_readwrite("number", &Change::number)
    .def_readwrite("rule", &Change::rule);
  module.def("update_cpu", [](Change const& change, int threads) {
    GilReleased const released;
    update_cpu(change.arguments(), number_of(change.number), rule_of(change.rule), threads);
  });
  module.def(
    "emulate_update",
    [](Change const& change, std::int64_t threads) {
      update_emulated(change.arguments(), number_of(change.number), rule_of(change.rule), threads);
    },
    "Run the GPU's kernel that changes rows thread by thread on the host.");
#if PYTORCH_DIRECT_HAVE_CUDA
  module.def("update_cuda", &update_on_device, py::call_guard<GilReleased>());
#endif
}

}  // namespace pytorch_direct
