"""Stands in for torch._meta_registrations, and does only what uncompiled code needs of it."""

import torch
from torch._opaque_base import OpaqueBaseMeta

# torch 2.13 does this in torch._prims.rng_prims; without it, torch.Generator() is an error.
torch._C._set_generator_metaclass(OpaqueBaseMeta)
