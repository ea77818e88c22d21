"""Two lines keep a plain loop: what is lost when it dies is made again, to the last bit."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import relkit
from relkit.errors import BadInputFile, UsageProblem
from relkit.flash_checkpoint.protection.loop import FILE, Protection
from tests.cluster.conftest import Start, orphans_come_to_us, start
from tests.flash_checkpoint.jobs.protect_job import BATCH, SIZE, loop

__all__ = ["orphans_come_to_us", "start"]
pytestmark = pytest.mark.timeout(200)

JOB = Path(__file__).parent / "jobs" / "protect_job.py"
_LOSS = re.compile(r"^(\S+) rank (\d+) step (\d+) loss (\S+)$", re.MULTILINE)


@pytest.mark.long
@pytest.mark.job
def test_a_killed_loop_makes_the_same_steps_again(start: Start, tmp_path: Path) -> None:
    done = start(
        "launch", "--nproc-per-node", "2", "--max-restarts", "2", "--timeline-path",
        tmp_path / "timeline", JOB, tmp_path / "ck", "2", "0:2,1:9",
    ).wait(150)  # fmt: skip
    assert done.code == 0, done.err
    rows = _LOSS.findall(done.out)
    real = {row[1:3]: row[3] for row in rows if row[0] == "undisturbed"}
    assert len(real) == 2 * 12, "two ranks make six steps in each of two epochs"
    assert [row for row in rows if row[3] != real[row[1:3]]] == []
    began = [int(step) for step in re.findall(r"checkpoint: step (\d+) from", done.err)]
    # The step that a rank dies after has not been saved: that begins with the next one.
    assert len(began) == 2, done.err
    assert began[0] in (0, 1), done.err
    assert began[1] in (7, 8), done.err
    for attempt, first in enumerate((1, began[0] + 1, began[1] + 1)):
        steps = [int(row[2]) for row in rows if row[0] == f"attempt-{attempt}"]
        assert min(steps) == first


def steps_of(folder: str, epochs: int = 2, stop: int = 0) -> list[tuple[int, float]]:
    """What a loop of this process makes until it is broken off."""
    made = []
    for step, loss in loop(epochs, folder=folder):
        made.append((step, loss))
        if step == stop:
            break
    return made


@pytest.fixture
def protections(monkeypatch: pytest.MonkeyPatch) -> list[Protection]:
    """Those that loops of this process have made, which would go with their processes."""
    made: list[Protection] = []
    protect = relkit.protect

    def noted(**arguments: object) -> Protection:
        made.append(protect(**arguments))
        return made[-1]

    monkeypatch.setattr(relkit, "protect", noted)
    return made


@pytest.mark.long
@pytest.mark.parametrize("stop", [SIZE // BATCH, SIZE // BATCH + 5])
def test_a_loop_goes_on_from_disk(tmp_path: Path, protections: list[Protection], stop: int) -> None:
    expected = steps_of("")
    assert steps_of(str(tmp_path), stop=stop) == expected[:stop]
    protections[-1].save()
    protections[-1].close()
    assert steps_of(str(tmp_path)) == expected[stop:]
    protections[-1].close()
    assert [path.name for path in tmp_path.glob("*.pt")] == [FILE]


@pytest.mark.long
def test_random_generators_go_on_in_a_loop_without_a_loader(tmp_path: Path) -> None:
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.manual_seed(1)
    first = relkit.protect(model=net, optimizer=optimizer, checkpoint_dir=tmp_path)
    net(torch.rand(1, 2)).sum().backward()
    optimizer.step()
    expected = torch.rand(3)
    first.save()
    first.close()
    torch.manual_seed(2)
    second = relkit.protect(model=net, optimizer=optimizer, checkpoint_dir=tmp_path)
    assert second.restore().step == 1
    assert torch.equal(torch.rand(3), expected)
    second.close()


@pytest.mark.long
def test_other_objects_are_refused_by_name(tmp_path: Path, protections: list[Protection]) -> None:
    steps_of(str(tmp_path), stop=1)
    protections[-1].save()
    protections[-1].close()
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(UsageProblem, match="sampler is a RandomSampler, which has no state_dict"):
        relkit.protect(model=net, optimizer=optimizer, sampler=torch.utils.data.RandomSampler([1]))
    bare = relkit.protect(model=net, optimizer=optimizer, checkpoint_dir=tmp_path)
    with pytest.raises(BadInputFile, match="model, optimizer, scheduler were saved, and model, op"):
        bare.restore()
    bare.close()


def test_importing_relkit_imports_no_torch() -> None:
    program = "import relkit, sys; print([relkit.__name__, 'torch' in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "['relkit', False]\n"
