// SPDX-License-Identifier: Apache-2.0
#include "gather_emulated.hpp"

#include "gather_body.hpp"

namespace pytorch_direct {
namespace {

template <int Width>
void run(GatherArguments const& arguments,
         GatherPath const& path,
         StridedRow const& shape,
         std::int64_t threads)
{
  for (std::int64_t thread = 0; thread < threads; ++thread) {
    switch (path.form) {
      case GatherForm::direct:
        gather_direct<Width>(arguments, path, thread, threads);
        break;
      case GatherForm::line:
        gather_line<Width>(arguments, path, thread, threads);
        break;
      case GatherForm::strided:
        gather_strided<Width>(arguments, shape, thread, threads);
        break;
    }
  }
}

}  // namespace

void gather_emulated(GatherArguments const& arguments,
                     GatherPath const& path,
                     RowLayout const& row,
                     std::int64_t element_bytes,
                     std::int64_t threads)
{
  auto const shape =
    path.form == GatherForm::strided ? strided_row(row, element_bytes) : StridedRow{};
  switch (path.width) {
    case 1:
      return run<1>(arguments, path, shape, threads);
    case 2:
      return run<2>(arguments, path, shape, threads);
    case 4:
      return run<4>(arguments, path, shape, threads);
    case 8:
      return run<8>(arguments, path, shape, threads);
    default:
      return run<16>(arguments, path, shape, threads);
  }
}

}  // namespace pytorch_direct
