"""One import gives a Megatron program try-to-persist, checkpoints in memory and step marks.

    import torch
    import relkit.megatron_adaptor

Right under `import torch` in pretrain_gpt.py, as MindSpeed's own line. Under `relkit launch`, and
where `--save` is given, the survivors of a fault save the last step, every step is kept in memory,
and what a killed job has saved is what it resumes from. Without the launcher only steps are marked,
which costs nothing and does nothing. No number of a run changes.

Importing it again does nothing. A version of megatron-core that is not known, or a Megatron whose
functions are others than expected, is left as it is, and one line says so.
"""

from __future__ import annotations

from relkit.megatron_adaptor.patches import adapt, adapted

__all__ = ["adapt", "adapted"]

adapt()
