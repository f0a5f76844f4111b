# SPDX-License-Identifier: Apache-2.0
"""Settings of the whole suite."""

import torch

# The tests check numbers, not speed; one thread keeps them quick beside other work.
torch.set_num_threads(1)
