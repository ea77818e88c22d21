"""relkit data: the guides' command lines as they stand, exit codes and JSON."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from relkit.cli import run
from relkit.data.indexed import IndexedDataset
from tests.preprocess.text_inputs import gpt2_files, stanzas, trained, write_jsonl


def test_the_migration_guides_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(tmp_path / "alpaca_json.json", stanzas())
    spec = gpt2_files(tmp_path)
    line = (
        f"data preprocess --input {tmp_path}/alpaca_json.json"
        f" --output-prefix {tmp_path}/gpt_pretrain_data/alpaca --tokenizer-type GPT2BPETokenizer"
        f" --vocab-file {spec.vocab_file} --merge-file {spec.merge_file}"
        " --append-eod --log-interval 5 --workers 2"
    ).split()
    assert run(line) == 0
    shown = capsys.readouterr()
    count = len(stanzas())
    assert f"alpaca_text_document.bin and .idx: {count} documents" in shown.out
    assert f"Processed {count} documents (" in shown.err
    prefix = tmp_path / "gpt_pretrain_data" / "alpaca_text_document"
    assert IndexedDataset(prefix).num_documents == count
    # Once more: refused, unless it is said.
    assert run(line) == 2
    assert "--force" in capsys.readouterr().err
    assert run([*line, "--force", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "relkit.data/1"
    assert document["data_sets"][0]["documents"] == count
    assert document["input_mb_per_s"] > 0


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_dlrover_guides_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(tmp_path / "stackexchange_aa.jsonl", stanzas())
    library = trained()
    library.save(str(tmp_path / "20B_tokenizer.json"))
    flags = (
        f"--vocab {tmp_path}/20B_tokenizer.json --tokenizer-type HFTokenizer --jsonl-keys text"
        f" --workers 2 --input {tmp_path}/stackexchange_aa.jsonl"
    ).split()
    out = tmp_path / "output"
    assert run(["data", "preprocess", *flags, "--output-prefix", f"{out}/result"]) == 0
    assert (
        run(["data", "preprocess", *flags, "--engine", "spark", "--output-prefix", f"{out}/spark"])
        == 0
    )
    capsys.readouterr()
    for ending in ("bin", "idx"):
        spread = (out / f"spark_text_document.{ending}").read_bytes()
        assert spread == (out / f"result_text_document.{ending}").read_bytes()


def test_several_keys_may_follow_one_option(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"title": "t", "body": "b"}\n')
    line = ["data", "preprocess", "--input", f"{tmp_path}/a.jsonl", "--output-prefix"]
    line += [f"{tmp_path}/o", "--tokenizer-type", "CharLevelTokenizer", "--workers", "1"]
    assert run([*line, "--json-keys", "title", "body"]) == 0
    assert IndexedDataset(tmp_path / "o_body_document")[0].tolist() == [98]
    assert run([*line, "body"]) == 2
    assert run([*line, "--partitions", "2"]) == 2


def test_a_bad_line_ends_with_three_and_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "t"}\n{"text"\n')
    line = ["data", "preprocess", "--input", f"{tmp_path}/a.jsonl", "--output-prefix"]
    line += [f"{tmp_path}/o", "--tokenizer-type", "CharLevelTokenizer", "--workers", "1"]
    assert run(line) == 3
    assert "a.jsonl: line 2 is not JSON" in capsys.readouterr().err
    assert not list(tmp_path.glob("o*"))


def test_inspect_merge_and_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_jsonl(tmp_path / "a.jsonl", ["ab", "c"])
    line = ["data", "preprocess", "--input", f"{tmp_path}/a.jsonl", "--output-prefix"]
    line += [f"{tmp_path}/a", "--tokenizer-type", "CharLevelTokenizer", "--workers", "1"]
    assert run([*line, "--append-eod"]) == 0
    prefix, both = f"{tmp_path}/a_text_document", f"{tmp_path}/both"
    assert run(["data", "merge", prefix, f"{prefix}.bin", "--output-prefix", both]) == 0
    assert run(["data", "merge", prefix, "--output-prefix", both]) == 2
    capsys.readouterr()
    assert run(["data", "inspect", f"{both}.idx", "--show", "4", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["data_sets"][0]
    assert (told["documents"], told["tokens"]) == (4, 10)
    assert told["first_tokens"] == [[97, 98, 0], [99]]
    assert run(["data", "inspect", both]) == 0
    assert "4 documents" in capsys.readouterr().out
    assert run(["data", "verify", both, "--vocab-size", "512", "--eod", "0"]) == 0
    assert run(["data", "verify", both, "--vocab-size", "99"]) == 1
    assert "token 99 is above the vocabulary of 99" in capsys.readouterr().out
    (tmp_path / "both.bin").write_bytes(b"1")
    assert run(["data", "verify", both, "--json"]) == 1
    assert "points past its .bin" in capsys.readouterr().out
    assert run(["data", "inspect", both]) == 3


def test_a_terminal_gets_a_bar_instead_of_lines(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", ["some text"] * 50_000)
    line = ["data", "preprocess", "--input", f"{tmp_path}/a.jsonl", "--output-prefix"]
    line += [f"{tmp_path}/o", "--tokenizer-type", "CharLevelTokenizer", "--workers", "1"]
    master, terminal = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "relkit", *line],
        stdout=subprocess.DEVNULL,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(terminal)
    shown = b""
    try:
        while piece := os.read(master, 4096):
            shown += piece
    except OSError:
        pass  # a pseudo terminal ends with EIO
    finally:
        os.close(master)
    assert child.wait(30) == 0
    assert b"docs/s" in shown
    assert b"Processed" not in shown


@pytest.mark.long
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_interrupted_leaves_nothing(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    write_jsonl(tmp_path / "a.jsonl", ["some text"] * 400_000)
    line = ["data", "preprocess", "--input", f"{tmp_path}/a.jsonl", "--output-prefix"]
    line += [f"{tmp_path}/o", "--tokenizer-type", "CharLevelTokenizer", "--workers", "2"]
    child = subprocess.Popen(
        [sys.executable, "-m", "relkit", *line], stderr=subprocess.PIPE, text=True
    )
    assert child.stderr is not None
    with child.stderr:
        assert child.stderr.readline().startswith("Processed")
        workers = psutil.Process(child.pid).children()
        child.send_signal(number)
        assert child.wait(30) == code
    assert [one.name for one in tmp_path.iterdir()] == ["a.jsonl"]
    assert not psutil.wait_procs(workers, timeout=10)[1]
