"""A workload as a YAML file, read and written.

Parameters are in definition order, layers in backward order, a layer's gradients in the order in which
backward finishes them::

name: two layers batch: 32 sample: image parameters:                 # in definition order
  fc1.weight: {count: 1048576}
  fc1.bias: {count: 1024}
  fc2.weight: {count: 10240, dtype: float32}
buffers:
  mean: {count: 1024}
layers:                     # in backward order; gradients in the order in which they are finished
  - {name: fc2, forward: 80us, backward: 160us, gradients: [fc2.weight]}
  - {name: fc1, forward: 1.2ms, backward: 2.4ms, gradients: [fc1.bias, fc1.weight], activation: 4MiB}
"""

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, StrictInt, ValidationError

from ringside.sim.workload.workload import Layer, Tensor, Workload, WorkloadError
from ringside.topologies import strict_yaml
from ringside.topologies.disk import regular, write_file
from ringside.topologies.strict_yaml import complaints
from ringside.topologies.units import Bytes, Seconds, format_duration, format_size


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Tensor(_Strict):
    count: StrictInt
    dtype: str = "float32"
    sparse: bool = False
    rows: StrictInt | None = None


class _Layer(_Strict):
    name: str
    forward: Seconds
    backward: Seconds
    gradients: list[str] = []
    activation: Bytes = 0


class _File(_Strict):
    name: str
    batch: StrictInt = 1
    sample: str = "sample"
    parameters: dict[str, _Tensor]
    buffers: dict[str, _Tensor] = {}
    layers: list[_Layer]


def read(path: Path) -> Workload:
    """Return the workload in the file; raise `WorkloadError` with all errors at once."""
    try:
        content = strict_yaml.loads(regular(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise WorkloadError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise WorkloadError(f"{path}: cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise WorkloadError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise WorkloadError(f"{path}: contains no workload; write 'name:', 'parameters:' and 'layers:'")
    try:
        file = _File(**content)
    except ValidationError as error:
        allowed = [field for model in (_File, _Tensor, _Layer) for field in model.model_fields]
        raise WorkloadError(complaints(error, str(path), list(dict.fromkeys(allowed)))) from None
    return _workload(file, path)


def write(workload: Workload, path: Path) -> None:
    """Write the workload so that `read` returns an equal one."""
    write_file(path, dumps(workload))


def dumps(workload: Workload) -> str:
    """Return the YAML text of a workload."""
    content: dict[str, Any] = {
        "name": workload.name,
        "batch": workload.batch,
        "sample": workload.sample,
        "parameters": {tensor.name: _plain_tensor(tensor) for tensor in workload.parameters},
        "buffers": {tensor.name: _plain_tensor(tensor) for tensor in workload.buffers},
        "layers": [_plain_layer(layer, workload) for layer in workload.layers],
    }
    return str(yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=110))


def _workload(file: _File, path: Path) -> Workload:
    position = {name: index for index, name in enumerate(file.parameters)}
    unknown = [
        f"{path}: layers.{index}.gradients: unknown parameter {name!r}"
        for index, layer in enumerate(file.layers)
        for name in layer.gradients
        if name not in position
    ]
    if unknown:
        raise WorkloadError("\n".join(unknown))
    return Workload(
        name=file.name,
        parameters=tuple(Tensor(name, **tensor.model_dump()) for name, tensor in file.parameters.items()),
        layers=tuple(
            Layer(
                name=layer.name,
                gradients=tuple(position[name] for name in layer.gradients),
                forward_s=layer.forward,
                backward_s=layer.backward,
                activation_nbytes=layer.activation,
            )
            for layer in file.layers
        ),
        buffers=tuple(Tensor(name, **tensor.model_dump()) for name, tensor in file.buffers.items()),
        batch=file.batch,
        sample=file.sample,
    )


def _plain_tensor(tensor: Tensor) -> dict[str, Any]:
    plain: dict[str, Any] = {"count": tensor.count, "dtype": tensor.dtype}
    if tensor.sparse:
        plain["sparse"] = True
    if tensor.rows is not None:
        plain["rows"] = tensor.rows
    return plain


def _plain_layer(layer: Layer, workload: Workload) -> dict[str, Any]:
    return {
        "name": layer.name,
        "forward": format_duration(layer.forward_s),
        "backward": format_duration(layer.backward_s),
        "gradients": [workload.parameters[index].name for index in layer.gradients],
        "activation": format_size(layer.activation_nbytes),
    }
