// SPDX-License-Identifier: Apache-2.0
#include "bindings_sampling.hpp"

#include "csc_build.hpp"
#include "sampling_cpu.hpp"
#include "sampling_emulated.hpp"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstdlib>

namespace py = pybind11;

namespace pytorch_direct {
namespace {

/// An array that owns the list's memory.
py::array_t<std::int64_t> given_away(NumberList& list)
{
  auto const size  = list.size();
  auto* const data = list.release();
  if (data == nullptr) { return py::array_t<std::int64_t>(0); }
  py::capsule const owner{data, [](void* memory) { std::free(memory); }};
  return py::array_t<std::int64_t>{size, data, owner};
}

NodeTable node_table(Numbers<7> const& n)
{
  return {pointer<std::int64_t>(n[0]),
          pointer<std::int64_t>(n[1]),
          pointer<Word>(n[2]),
          pointer<Word>(n[3]),
          n[4],
          n[5],
          pointer<std::int64_t>(n[6])};
}

void bind_arguments(py::module_& module)
{
  py::class_<Relation>(module, "Relation")
    .def(py::init([](std::int64_t indptr,
                     std::int64_t indices,
                     bool indices_are_64_bit,
                     std::int64_t destinations,
                     std::int64_t sources,
                     std::int64_t edge_ids,
                     std::int64_t weights,
                     std::int64_t drawable,
                     std::int64_t edge_time,
                     std::int64_t source_time) {
      return Relation{pointer<std::int64_t const>(indptr),
                      pointer<void const>(indices),
                      indices_are_64_bit,
                      destinations,
                      sources,
                      pointer<std::int64_t const>(edge_ids),
                      pointer<std::uint64_t const>(weights),
                      pointer<std::int64_t const>(drawable),
                      pointer<std::int64_t const>(edge_time),
                      pointer<std::int64_t const>(source_time)};
    }));
  py::class_<SamplingRule>(module, "SamplingRule")
    .def(py::init([](std::int64_t fanout,
                     bool replace,
                     bool last,
                     std::uint64_t seed,
                     std::uint64_t batch,
                     std::uint32_t hop,
                     std::uint32_t relation) {
      return SamplingRule{fanout, replace, last, hop_key(seed, batch, hop, relation)};
    }));
}

void bind_cpu_batch(py::module_& module)
{
  py::class_<CpuBatch>(module, "CpuBatch")
    .def(py::init<std::size_t, std::size_t, bool, int>())
    .def("add_seeds",
         [](CpuBatch& batch,
            std::size_t type,
            std::int64_t seeds,
            std::int64_t count,
            std::int64_t first_batch,
            std::int64_t nodes) {
           GilReleased const released;
           return batch.add_seeds(
             type, pointer<std::int64_t const>(seeds), count, first_batch, nodes);
         })
    .def("take",
         [](CpuBatch& batch,
            std::size_t index,
            Relation const& relation,
            std::size_t source_type,
            std::size_t destination_type,
            SamplingRule const& rule,
            std::int64_t times,
            bool names) {
           GilReleased const released;
           batch.take(index,
                      relation,
                      source_type,
                      destination_type,
                      rule,
                      pointer<std::int64_t const>(times),
                      names);
         })
    .def("end_hop", &CpuBatch::end_hop)
    .def("counts",
         [](CpuBatch& batch, std::size_t node_types, std::size_t relations) {
           std::vector<std::int64_t> nodes;
           std::vector<std::int64_t> edges;
           for (std::size_t i = 0; i < node_types; ++i) {
             nodes.push_back(batch.nodes(i).nodes.size());
           }
           for (std::size_t i = 0; i < relations; ++i) {
             edges.push_back(batch.edges(i).row.size());
           }
           return py::make_tuple(nodes, edges);
         })
    .def("nodes",
         [](CpuBatch& batch, std::size_t type) {
           auto& nodes = batch.nodes(type);
           return py::make_tuple(given_away(nodes.nodes), given_away(nodes.batch));
         })
    .def("edges", [](CpuBatch& batch, std::size_t index) {
      auto& edges = batch.edges(index);
      return py::make_tuple(given_away(edges.row), given_away(edges.col), given_away(edges.id));
    });
}

void bind_emulated(py::module_& module)
{
  module.def("insert_seeds_emulated",
             [](Numbers<7> const& table,
                Numbers<5> const& numbers,
                std::int64_t threads,
                std::uint64_t order) {
               insert_seeds_emulated(seed_arguments(table, numbers), {threads, order});
             });
  module.def("hop_emulated",
             [](bool take,
                Relation const& relation,
                SamplingRule const& rule,
                Numbers<5> const& frontier,
                Numbers<7> const& sources,
                Numbers<5> const& edges,
                Numbers<6> const& scratch,
                std::int64_t threads,
                std::uint64_t order) {
               auto const arguments =
                 hop_arguments(relation, rule, frontier, sources, edges, scratch);
               if (take) {
                 take_hop_emulated(arguments, {threads, order});
               } else {
                 count_hop_emulated(arguments, {threads, order});
               }
             });
}

void bind_build(py::module_& module)
{
  module.def(
    "csc_build",
    [](std::int64_t sources,
       std::int64_t destinations,
       bool is_64_bit,
       std::int64_t count,
       std::int64_t nodes,
       std::int64_t indptr,
       std::int64_t indices,
       bool indices_are_64_bit,
       std::int64_t edge_ids,
       int threads) {
      GilReleased const released;
      csc_build({pointer<void const>(sources), pointer<void const>(destinations), is_64_bit, count},
                nodes,
                {pointer<std::int64_t>(indptr),
                 pointer<void>(indices),
                 indices_are_64_bit,
                 pointer<std::int64_t>(edge_ids)},
                threads);
    });
  module.attr("many_choices")   = kManyChoices;
  module.attr("slots_a_choice") = ChosenSet::kSlots;
  module.def("first_bad_offset", [](std::int64_t indptr, std::int64_t nodes, std::int64_t edges) {
    GilReleased const released;
    return first_bad_offset(pointer<std::int64_t const>(indptr), nodes, edges);
  });
  module.def("weight_sums",
             [](std::int64_t indptr,
                std::int64_t nodes,
                std::int64_t weights,
                std::int64_t sums,
                std::int64_t drawable,
                int threads) {
               GilReleased const released;
               weight_sums(pointer<std::int64_t const>(indptr),
                           nodes,
                           pointer<double const>(weights),
                           pointer<std::uint64_t>(sums),
                           pointer<std::int64_t>(drawable),
                           threads);
             });
  module.def("random_below",
             [](std::uint64_t seed,
                std::uint64_t batch,
                std::uint32_t purpose,
                std::int64_t count,
                std::int64_t first,
                std::int64_t bound,
                std::int64_t out) {
               GilReleased const released;
               Draws draws{hop_key(seed, batch, kNotAHop, purpose), 0};
               auto* const numbers = pointer<std::int64_t>(out);
               for (std::int64_t i = 0; i < count; ++i) { numbers[i] = draws.at(first + i, bound); }
             });
}

}  // namespace

HopArguments hop_arguments(Relation const& relation,
                           SamplingRule const& rule,
                           Numbers<5> const& frontier,
                           Numbers<7> const& sources,
                           Numbers<5> const& edges,
                           Numbers<6> const& scratch)
{
  return {relation,
          rule,
          {pointer<std::int64_t const>(frontier[0]),
           pointer<std::int64_t const>(frontier[1]),
           pointer<std::int64_t const>(frontier[2]),
           pointer<std::int64_t const>(frontier[3]),
           frontier[4]},
          node_table(sources),
          {pointer<std::int64_t>(edges[0]),
           pointer<std::int64_t>(edges[1]),
           pointer<std::int64_t>(edges[2]),
           pointer<std::int64_t>(edges[3]),
           edges[4]},
          {pointer<std::int64_t>(scratch[0]),
           pointer<std::int64_t>(scratch[1]),
           pointer<std::int64_t>(scratch[2]),
           pointer<std::int64_t>(scratch[3]),
           pointer<std::int64_t>(scratch[4]),
           pointer<std::int64_t>(scratch[5])}};
}

SeedArguments seed_arguments(Numbers<7> const& table, Numbers<5> const& numbers)
{
  return {
    node_table(table), numbers[0], numbers[1], numbers[2], numbers[3], pointer<Word>(numbers[4])};
}

void bind_sampling(py::module_& module)
{
  bind_arguments(module);
  bind_cpu_batch(module);
  bind_emulated(module);
  bind_build(module);
}

}  // namespace pytorch_direct
