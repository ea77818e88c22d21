"""Which source files are infrastructure: the interpreter's, and those of well-known libraries.

Everything else is somebody's code, also where it is installed: a trainer that came by pip, a site's
own package, a model from a hub. A hang is blamed on the innermost line of such code.
"""

from __future__ import annotations

import re
import sys

# By the first folder or file below site-packages. Not here: frameworks with a training loop of
# their own, such as transformers or lightning. Their line says more than the one that called them.
_NAMES = """
absl accelerate aiohttp anyio apex asyncssh attr attrs bitsandbytes boto3 botocore certifi cffi
click cloudpickle cupy cv2 dask datasets dateutil deep_ep deepspeed dill distributed einops
fastapi filelock flash_attn flashinfer fsspec functorch gcsfs grpc h5py httpcore httpx
huggingface_hub imageio jax jaxlib jinja2 joblib kubernetes llvmlite lmdb matplotlib mlflow mpi4py
mpmath msgpack multidict multiprocess networkx numba numexpr numpy onnx onnxruntime orjson
packaging pandas paramiko PIL pip pkg_resources polars prometheus_client psutil py4j pyarrow
pydantic pynvml pyspark pytest ray redis regex requests rich s3fs s3transfer safetensors scipy
sentencepiece sentry_sdk setuptools six skimage sklearn smart_open sqlalchemy starlette streaming
sympy tensorboard tensorboardX tensorstore threadpoolctl tiktoken tokenizers torchao torchaudio
torchcodec torchdata torchelastic torchmetrics torchtext torchvision tornado tqdm
transformer_engine triton typing_extensions urllib3 uvicorn uvloop wandb webdataset websockets
wrapt xformers xxhash yaml yarl zarr zmq zstandard
"""
_PACKAGES = frozenset(_NAMES.split())
_FAMILIES = re.compile(r"(azure|google|nvidia|opentelemetry|tensorflow|torch)(_\w+)?")
_INSTALLED = re.compile(r"/(?:site|dist)-packages/")
# What is not installed: the standard library, frozen modules, and torch in the tree of its sources.
_ELSEWHERE = re.compile(r"/lib(64)?/python3[.\d]*/|/torch/(distributed|nn|utils|autograd)/|^<")
# relkit's own threads and waits in the job; its trainer and its examples are a job's code.
_RELKIT = re.compile(r"/relkit/(bootstrap|flash_checkpoint|hook|straggler|ttp)/")


def is_infrastructure(path: str) -> bool:
    """Whether this file belongs to the interpreter or to a well-known library.

    Args:
        path: of a Python source file.
    """
    if _RELKIT.search(path):
        return True
    *before, rest = _INSTALLED.split(path)
    if not before:
        return bool(_ELSEWHERE.search(path))
    package = rest.partition("/")[0].removesuffix(".py")
    if package in _PACKAGES or package in sys.stdlib_module_names:  # installed for an older Python
        return True
    return bool(_FAMILIES.fullmatch(package))
