"""How much longer than usual something may take before a test calls it a hang.

Limits of waits in tests are what a quiet machine needs, with room; a machine that is busy on all of
its cores is no hang. What must be quick is asserted on its measured duration, not by such a limit.
"""

from __future__ import annotations

PATIENCE = 3.0
