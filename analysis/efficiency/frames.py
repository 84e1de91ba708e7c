"""Names of Python frames in traces: name -> file, line, function, and whose code it is.

PyTorch's profiler writes ``file(line): function`` with the line where the function begins, and cuts the folder of the packages from the
file (``torch/nn/modules/linear.py``), so that libraries are recognized by the names of their packages.
"""

from __future__ import annotations

import sys
from typing import Final

import polars as pl

USER: Final = "user"
LIBRARY: Final = "library"
BASE: Final = "base"  # of PyTorch, of Python, or of no file

_FRAME: Final = r"^([^<].*)\((\d+)\): (.*)$"
_PACKAGES: Final = r"(?:^|/)(?:site|dist)-packages/"
_STANDARD: Final = r"(?:^|/)lib(?:64|32)?/python\d[\w.]*/"
_ABSOLUTE: Final = r"^(?:/|[A-Za-z]:/)"
_TORCH: Final = (
    "torch", "functorch", "torchgen", "triton", "<eval_with_key>",
)  # fmt: skip
# Files of PyTorch outside of the folder of packages: built from source, or code that its compiler generated.
_TORCH_FILE: Final = (
    r"/torch/(?:_\w+|amp|autograd|backends|compiler|cuda|distributed|fx|functional|jit|nested|nn|optim|overrides|profiler|sparse|utils)[/.]"
    r"|(?:^|/)torchinductor_|/torch_compile_debug/|(?:^|/)triton/(?:compiler|runtime|backends)/"
)
# Files of installations that are edited in their own folder, as containers of inference engines have them.
_LIBRARY_FILE: Final = (
    r"/vllm/(?:v1|engine|worker|model_executor|entrypoints|executor|attention|distributed|compilation|core|utils)[/.]|/sglang/srt/"
    r"|/tensorrt_llm/|/megatron/(?:core|training|legacy)/|/deepspeed/(?:runtime|ops|comm|inference)/"
    r"|/transformers/(?:models|generation|integrations|utils|trainer\w*\.py|modeling_\w+\.py)"
    r"|/diffusers/(?:pipelines|models|schedulers)/|/transformer_engine/(?:pytorch|common|jax)/|/xfuser/(?:core|model_executor)/"
)
_LIBRARY_NAMES: Final = """
    IPython PIL _pytest absl accelerate aiohttp aiter albumentations anyio apex attr av bitsandbytes botocore boto3 causal_conv1d colossalai
    composer cupy cv2 dask datasets debugpy decord deep_ep deep_gemm deepspeed detectron2 dgl diffusers einops evaluate fairscale fairseq
    fastai fastapi fbgemm_gpu fire fla flash_attn flashinfer flax fsspec gradio grouped_gemm h5py huggingface_hub hydra ignite
    ipykernel jax jaxlib joblib keras kornia librosa lightning lightning_fabric lightning_utilities liger_kernel llmcompressor mamba_ssm
    matplotlib megatron mlflow mmcv mmengine monai msgpack msgspec nemo numba numpy omegaconf onnx onnxruntime open_clip optax optimum
    optuna outlines pandas peft pluggy postrun psutil pyarrow pydantic pytest pytorch_lightning ray requests s3fs sagemaker safetensors
    scipy sentence_transformers sentencepiece sgl_kernel sglang skimage sklearn smdebug smprofiler soundfile starlette streaming sympy
    tensorboard tensorboardX tensordict tensorflow tensorrt_llm tiktoken timm tokenizers torch_geometric torch_xla torchao torchaudio
    torchdata torchmetrics torchrec torchtext torchtune torchvision tornado tqdm traitlets transformer_engine transformers trl typer
    ultralytics unsloth unsloth_zoo urllib3 uvicorn uvloop vllm wandb webdataset xformers xfuser xgrammar yaml zmq
"""
_LIBRARIES: Final = frozenset(_LIBRARY_NAMES.split())
_SINGLE_FILES: Final = frozenset({"six", "typing_extensions", "decorator"})
_STANDARD_NAMES: Final = """
    asyncio collections concurrent ctypes curses dbm distutils email encodings ensurepip html http idlelib importlib json lib2to3 logging
    multiprocessing pathlib pydoc_data re sqlite3 string sysconfig tkinter tomllib unittest urllib venv wsgiref xml xmlrpc zoneinfo
"""
_STANDARD_PACKAGES: Final = frozenset(_STANDARD_NAMES.split())
# Modules of Python whose names programs also give to their own files, and that hardly run in a training.
_ALSO_OF_USERS: Final = {"calendar", "chunk", "cmd", "code", "profile", "sched", "statistics", "this", "token", "trace", "turtle"}
_STANDARD_FILES: Final = (frozenset(sys.stdlib_module_names) | {"sre_compile", "sre_parse", "imp"}) - _ALSO_OF_USERS


def frames(texts: pl.Series) -> pl.DataFrame:
    """Parse names of frames: ``line`` ("file:line"), ``function``, ``origin``.

    A name of another form, such as ``<built-in function linear>``, has nulls and the origin BASE."""
    parts = texts.to_frame("text").select(
        file=pl.col("text").str.extract(_FRAME, 1),
        number=pl.col("text").str.extract(_FRAME, 2),
        function=pl.col("text").str.extract(_FRAME, 3),
    )
    return parts.select(line=pl.format("{}:{}", "file", "number"), function="function", origin=_origin(pl.col("file")))


def _origin(file: pl.Expr) -> pl.Expr:
    path = file.str.replace_all("\\", "/", literal=True).str.replace(r"^(?:\./)+", "")
    packaged = path.str.contains(_PACKAGES)
    # Of nested folders of packages the innermost has the package.
    inside = pl.when(packaged).then(path.str.replace(f"^.*{_PACKAGES}", "")).otherwise(path)
    folder = inside.str.extract(r"^([^/]+)/", 1)
    alone = inside.str.extract(r"^([^/]+)\.py$", 1)
    top = pl.coalesce(folder, alone)
    relative = packaged | ~path.str.contains(_ABSOLUTE)
    of_torch = (relative & folder.is_in(_TORCH)) | path.str.contains(_TORCH_FILE)
    of_python = (~packaged & path.str.contains(_STANDARD)) | (
        relative & ~packaged & (folder.is_in(sorted(_STANDARD_PACKAGES)) | alone.is_in(sorted(_STANDARD_FILES)))
    )
    of_library = (
        packaged | (relative & (folder.is_in(sorted(_LIBRARIES)) | top.is_in(sorted(_SINGLE_FILES)))) | path.str.contains(_LIBRARY_FILE)
    )
    return (
        pl.when(path.is_null() | of_torch.fill_null(False) | of_python.fill_null(False))
        .then(pl.lit(BASE))
        .when(of_library.fill_null(False))
        .then(pl.lit(LIBRARY))
        .otherwise(pl.lit(USER))
    )
