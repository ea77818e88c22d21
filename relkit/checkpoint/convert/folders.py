"""Whole models out of folders, and into them: Megatron's torch layout, and Hugging Face's."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from relkit.checkpoint import iteration_folder
from relkit.checkpoint.convert import cuts, hugging_face, shape
from relkit.checkpoint.convert.cuts import Degrees, Place
from relkit.checkpoint.convert.shape import Shape
from relkit.checkpoint.iteration_folder import RELEASE
from relkit.checkpoint.megatron_facts import OBJECTS_OF
from relkit.checkpoint.torch_file import read_plain
from relkit.errors import BadInputFile, RelkitError, UnwritablePath
from relkit.files.input_file import read_input

_MODEL_FILE = "model_optim_rng.pt"
_MAX_JSON_BYTES = 64 * 1024 * 1024
_PLACE = re.compile(r"mp_rank_(\d\d)(?:_(\d\d\d))?(?:_(\d\d\d))?$")
_DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
_INSTALL = "Install it: pip install safetensors"


@dataclass(frozen=True, slots=True)
class Whole:
    """A model.

    Args:
        weights: by megatron-core's names, layers and experts counted from the model's first.
    """

    shape: Shape
    weights: Mapping[str, Tensor]


def read_megatron(path: Path) -> Whole:
    """The model of an iteration, relkit's or Megatron's.

    Args:
        path: what --save named, or one iteration in it.

    Raises:
        BadInputFile: there is none, it is not whole, or it is one that is not converted.
    """
    folder = _iteration(path)
    paths = {p.parent.name: p for p in folder.glob(f"mp_rank_*/{_MODEL_FILE}")}
    if not paths:
        kind = "dist" if any(folder.glob("*.distcp")) else "no"
        raise BadInputFile(
            f"{folder} has {kind} checkpoint files, and no mp_rank_*/{_MODEL_FILE}",
            next_step="Save with Megatron's --ckpt-format torch.",
        )
    files = {name: read_plain(p, arrays=True, objects_of=OBJECTS_OF) for name, p in paths.items()}
    try:
        args = vars(files[min(files)]["args"])
        degrees = _degrees(args)
        made = shape.of_arguments(args)
        parts = _parts(files, degrees, folder)
        weights = cuts.join(
            parts, degrees, layers=made.layers, experts=made.experts,
            gated=made.activation == shape.SWIGLU, tied=made.tied,
        )  # fmt: skip
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise BadInputFile(
            f"{folder} lacks something or has it in another form: {type(error).__name__} {error}"
        ) from error
    return Whole(made, weights)


def _iteration(path: Path) -> Path:
    if any(path.glob("mp_rank_*")) or path.name == RELEASE:
        return path
    if iteration_folder.is_release(path):
        return path / RELEASE
    step = iteration_folder.latest(path)
    if step is None:
        raise BadInputFile(f"{path} has no {iteration_folder.TRACKER}, and is no iteration")
    return iteration_folder.existing(path, step)


def _degrees(args: Mapping[str, Any]) -> Degrees:
    return Degrees(
        tensor=int(args["tensor_model_parallel_size"]),
        pipeline=int(args["pipeline_model_parallel_size"]),
        virtual=int(args.get("virtual_pipeline_model_parallel_size") or 1),
        expert=int(args.get("expert_model_parallel_size") or 1),
    )


def _parts(
    files: Mapping[str, Any], degrees: Degrees, folder: Path
) -> dict[Place, Mapping[str, Tensor]]:
    parts: dict[Place, Mapping[str, Tensor]] = {}
    for place in cuts.places(degrees):
        name = _rank_folder(place, degrees)
        if name not in files:
            raise BadInputFile(f"{folder / name / _MODEL_FILE} is missing")
        model = files[name]["model" if degrees.virtual == 1 else f"model{place.chunk}"]
        extra = {k: v for k, v in model.items() if isinstance(v, Tensor)}
        if any(".layer_norm_weight" in key for key in extra):
            raise BadInputFile(
                f"{folder} has layers of Transformer Engine, whose norms are within other layers",
                next_step="Save it with --transformer-impl local.",
            )
        parts[place] = extra
    return parts


def _rank_folder(place: Place, degrees: Degrees) -> str:
    name = f"mp_rank_{place.tensor:02d}"
    if degrees.pipeline > 1:
        name += f"_{place.pipeline:03d}"
    if degrees.expert > 1:
        name += f"_{place.expert:03d}"
    return name


def write_release(whole: Whole, folder: Path, degrees: Degrees, divisible_by: int) -> None:
    """Weights alone, as Megatron publishes a model: FOLDER/release, where --load FOLDER starts.

    Args:
        divisible_by: as --make-vocab-size-divisible-by; missing rows of the embedding are zero.

    Raises:
        UnwritablePath: the folder is not empty, or cannot be written.
        BadInputFile: the degrees do not divide the model.
    """
    multiple = divisible_by * degrees.tensor
    rows = -(-whole.weights[hugging_face.EMBEDDING].shape[0] // multiple) * multiple
    weights = {
        name: _padded(value, rows)
        if name in (hugging_face.EMBEDDING, hugging_face.OUTPUT)
        else value
        for name, value in whole.weights.items()
    }
    virtual = degrees.virtual if degrees.virtual > 1 else None
    named = {
        "tensor_model_parallel_size": degrees.tensor,
        "pipeline_model_parallel_size": degrees.pipeline,
        "virtual_pipeline_model_parallel_size": virtual,
        "expert_model_parallel_size": degrees.expert,
        "make_vocab_size_divisible_by": divisible_by,
        "iteration": 0,
        "consumed_train_samples": 0,
        "consumed_valid_samples": 0,
    }
    args = shape.to_arguments(whole.shape, named, rows)
    with _written(folder) as made:
        for place in cuts.places(replace(degrees, virtual=1)):
            state: dict[str, Any] = {"args": args, "checkpoint_version": 3.0, "iteration": 0}
            for chunk in range(degrees.virtual):
                key = "model" if degrees.virtual == 1 else f"model{chunk}"
                state[key] = cuts.cut(
                    weights, replace(place, chunk=chunk), degrees, layers=whole.shape.layers,
                    experts=whole.shape.experts, gated=whole.shape.activation == shape.SWIGLU,
                )  # fmt: skip
            name = f"{_rank_folder(place, degrees)}/{_MODEL_FILE}"
            iteration_folder.write_file(
                made / RELEASE,
                name,
                lambda out, state=state: torch.save(state, out),  # type: ignore[misc]
            )
        iteration_folder.write_file(
            made, iteration_folder.TRACKER, lambda out: out.write(RELEASE.encode())
        )


def _padded(value: Tensor, rows: int) -> Tensor:
    return torch.cat((value, value.new_zeros(rows - value.shape[0], *value.shape[1:])))


def read_hugging_face(folder: Path) -> Whole:
    """The model of a folder with config.json and safetensors.

    Raises:
        BadInputFile: something is missing, or it is of a kind that is not converted.
    """
    config = _json(folder / "config.json")
    made = hugging_face.of_settings(config)
    index = folder / "model.safetensors.index.json"
    names = ["model.safetensors"]
    if index.is_file():
        names = sorted(set(_json(index)["weight_map"].values()))
    safe = _safetensors()
    theirs: dict[str, Tensor] = {}
    for name in names:
        path = folder / name
        if path.parent != folder or not path.is_file():
            raise BadInputFile(f"{path} is missing", next_step="Save the model with safetensors.")
        try:
            theirs |= safe.load_file(path)
        except (OSError, RuntimeError, ValueError, safe.SafetensorError) as error:
            raise BadInputFile(f"{path} cannot be read: {error}") from error
    return Whole(made, hugging_face.to_ours(theirs, made))


def write_hugging_face(whole: Whole, folder: Path, vocabulary: int | None) -> None:
    """A folder that transformers' from_pretrained takes.

    Args:
        vocabulary: rows of the embedding that are kept; None: all that the model is known to use.

    Raises:
        UnwritablePath: the folder is not empty, or cannot be written.
        BadInputFile: the model is of a kind that transformers does not have.
    """
    safe = _safetensors()
    kept = vocabulary or whole.shape.vocabulary or None
    weights = {
        name: value[:kept] if name in (hugging_face.EMBEDDING, hugging_face.OUTPUT) else value
        for name, value in whole.weights.items()
    }
    theirs = hugging_face.to_theirs(weights, whole.shape)
    embedding = weights[hugging_face.EMBEDDING]
    dtype = _DTYPES.get(embedding.dtype, "float32")
    config = hugging_face.settings(whole.shape, embedding.shape[0], dtype)
    text = json.dumps(config, indent=2) + "\n"
    with _written(folder) as made:
        iteration_folder.write_file(made, "config.json", lambda out: out.write(text.encode()))
        content = safe.save(theirs, metadata={"format": "pt"})
        iteration_folder.write_file(made, "model.safetensors", lambda out: out.write(content))


@contextmanager
def _written(folder: Path) -> Iterator[Path]:
    """A folder beside the one that is wanted, which takes its place once all is written."""
    try:
        if folder.exists() and any(folder.iterdir()):
            raise UnwritablePath(
                f"{folder} is not empty", next_step="Name a folder that is not there yet."
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    except OSError as error:
        raise UnwritablePath(f"cannot write {folder}: {error.strerror or error}") from error
    try:
        yield made
        made.replace(folder)
    except OSError as error:
        raise UnwritablePath(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_input(path, _MAX_JSON_BYTES))
    except OSError as error:
        raise BadInputFile(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise BadInputFile(f"{path} is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise BadInputFile(f"{path} is no JSON object")
    return content


class _Safetensors:
    """What is used of the safetensors package."""

    def __init__(self) -> None:
        import safetensors
        import safetensors.torch

        self.SafetensorError = safetensors.SafetensorError
        self.load_file = safetensors.torch.load_file
        self.save = safetensors.torch.save


def _safetensors() -> _Safetensors:
    try:
        return _Safetensors()
    except ImportError as error:
        raise RelkitError("safetensors is not installed", next_step=_INSTALL) from error
