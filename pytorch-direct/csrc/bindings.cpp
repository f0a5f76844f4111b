// SPDX-License-Identifier: Apache-2.0
#include "bindings.hpp"

#include "bindings_sampling.hpp"

PYBIND11_MODULE(_native, module)
{
  module.doc() =
    "Kernels of pytorch_direct over addresses; private, without any check of arguments.";
  pytorch_direct::bind_cpu(module);
  pytorch_direct::bind_update(module);
  pytorch_direct::bind_sampling(module);
  module.attr("cuda_architectures") = PYTORCH_DIRECT_ARCHITECTURES;
#if PYTORCH_DIRECT_HAVE_CUDA
  module.attr("has_cuda") = true;
  pytorch_direct::bind_cuda(module);
  pytorch_direct::bind_sampling_cuda(module);
#else
  module.attr("has_cuda") = false;
#endif
}
