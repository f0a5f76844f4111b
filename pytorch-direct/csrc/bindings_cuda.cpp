// SPDX-License-Identifier: Apache-2.0
#include "bindings.hpp"

#if PYTORCH_DIRECT_HAVE_CUDA

#include "bad_ids.hpp"
#include "cuda_failure.hpp"
#include "event_wait.hpp"
#include "gather_cuda.hpp"

namespace py = pybind11;

namespace pytorch_direct {
namespace {

py::object as_tuple(std::optional<BadIdReport> const& bad)
{
  if (!bad) { return py::none(); }
  return py::make_tuple(bad->position, bad->id, bad->rows, bad->count, bad->wrap, bad->scatter);
}

/// Gives the report of an earlier call, in which case nothing was launched, or None.
py::object gather(int device,
                  Address stream,
                  Address table,
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
                  std::int64_t out_element_bytes,
                  std::string const& cast_from,
                  std::string const& cast_to,
                  std::optional<double> factor,
                  Address row_factor,
                  std::int64_t region_bytes,
                  bool merge,
                  Address workspace,
                  std::size_t workspace_bytes,
                  int max_blocks,
                  int more_blocks,
                  int cap)
{
  if (auto const bad = take_bad_ids(device)) { return as_tuple(bad); }
  auto const row = row_layout(sizes, strides, element_bytes);
  Launch const launch{device, stream, max_blocks, more_blocks, cap};
  {
    GilReleased const released;
    auto const kind     = ids_are_64_bit ? IdKind::int64 : IdKind::int32;
    auto const elements = row.row_bytes / element_bytes;
    GatherArguments arguments{bytes_at(table),
                              rows,
                              stride,
                              elements * out_element_bytes,
                              bytes_at(ids),
                              count,
                              nullptr,
                              bytes_at(out),
                              kind,
                              wrap,
                              bad_id_sink(device, stream)};
    if (region_bytes > 0) {
      order_by_address(
        arguments, launch, region_bytes, merge, bytes_at(workspace), workspace_bytes);
    }
    if (cast_to.empty()) {
      gather_bytes(arguments, row, element_bytes, launch);
    } else {
      gather_cast(
        arguments, conversion_of(cast_from, cast_to, elements, factor, row_factor), launch);
    }
  }
  return py::none();
}

/// Raised through the class that Python's callers know.
void translate(std::exception_ptr pointer)
{
  if (!pointer) { return; }
  try {
    std::rethrow_exception(pointer);
  } catch (CudaFailure const& failure) {
    auto const type = py::module_::import("datapath_core").attr("CudaError");
    py::set_error(type, type(failure.what(), failure.code()));
  }
}

}  // namespace

void bind_cuda(py::module_& module)
{
  py::register_local_exception_translator(&translate);
  module.def("gather_cuda", &gather);
  module.def("order_workspace_bytes", &order_workspace_bytes);
  module.def("uses_bad_ids", &uses_bad_ids);
  module.def("multiprocessors", &multiprocessors);
  module.def("take_bad_ids", [](int device) { return as_tuple(take_bad_ids(device)); });
  module.def("wait_for_event", &wait_for_event, py::call_guard<GilReleased>());
  module.attr("block_threads") = kBlockThreads;
}

}  // namespace pytorch_direct

#endif
