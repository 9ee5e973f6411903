"""What `dg scaffold defs` writes for each component: a `defs.yaml` that loads as it is."""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import asdict
from pathlib import Path
from string import Template
from typing import Any, ClassVar, Generic, TypeVar

import dagster as dg
from pydantic import BaseModel, Field

from dagster_sluicegate.names import Names

__all__ = [
    "BatchSensorScaffolder",
    "DepthSensorScaffolder",
    "DrainScaffolder",
    "GatesSensorScaffolder",
    "PublishScaffolder",
    "ResourceScaffolder",
]

_PYTHON = Template("""\
import dagster as dg

from $module import $name
$imports

@dg.component_instance
def load(context: dg.ComponentLoadContext) -> $name:
    return $name(
$arguments    )
""")

_HANDLER = Template('''\
"""The work of the drain asset $key."""

from dagster_sluicegate import QueueDrainContext
from sluicegate import Message

FOLDER = "data/$key"


def process(messages: list[Message], ctx: QueueDrainContext) -> None:
    """Write a batch into a file of its own, as JSON lines.

    The messages are acked when this returns. When it raises, they return to the queue. A batch that is delivered again
    replaces its file.
    """
    path = ctx.output_file(FOLDER, ".jsonl")
    path.write_text("".join(message.text() + "\\n" for message in messages))
''')

_PRODUCER = Template('''\
"""The messages that the asset $key publishes."""

from collections.abc import Iterator
from typing import Any


def produce() -> Iterator[dict[str, Any]]:
    """Yield the payloads, in the same order for the same run: a retry publishes only what is missing."""
    for number in range(10):
        yield {"number": number}
''')


class ResourceParams(BaseModel):
    """The parameters of `dg scaffold defs` for a resource."""

    queue_name: str | None = Field(default=None, description="Name of the queue; default: the folder's.")
    stream_name: str | None = Field(default=None, description="Name of a stream, instead of a queue.")
    group: str | None = Field(default=None, description="Name of the group of the stream.")
    url_env_var: str = Field(default="REDIS_URL", description="Environment variable that holds the URL.")
    resource_key: str = Field(default="queue", description="Key of the resource.")


class AssetParams(BaseModel):
    """The parameters of `dg scaffold defs` for an asset that drains or publishes."""

    asset_key: str | None = Field(default=None, description="Key of the asset; default: the folder's name.")
    function: str | None = Field(default=None, description="Function, as module:function; default: one in a new file.")
    resource_key: str = Field(default="queue", description="Key of the queue's resource.")
    queue_name: str | None = Field(default=None, description="Name of the queue; default: the resource's.")
    stream_name: str | None = Field(default=None, description="Name of a stream, instead of a queue.")
    group: str | None = Field(default=None, description="Name of the group of the stream; default: the resource's.")


class DepthSensorParams(BaseModel):
    """The parameters of `dg scaffold defs` for a sensor."""

    name: str | None = Field(default=None, description="Name of the sensor; default: the folder's.")
    target: str = Field(description="Selection of the assets to run, such as key:orders.")
    min_ready: int = Field(default=1000, description="Ready messages that open the gate.")
    max_age_seconds: float = Field(default=300, description="Age of the oldest ready message that opens the gate.")
    resource_key: str = Field(default="queue", description="Key of the queue's resource.")
    queue_name: str | None = Field(default=None, description="Name of the queue; default: the resource's.")
    stream_name: str | None = Field(default=None, description="Name of a stream, instead of a queue.")
    group: str | None = Field(default=None, description="Name of the group of the stream; default: the resource's.")


Params = TypeVar("Params", bound=BaseModel)


class QueueScaffolder(dg.Scaffolder[Params], Generic[Params]):
    """The base of the scaffolders: it writes attributes as YAML, or as Python."""

    def scaffold(self, request: dg.ScaffoldRequest[Params]) -> None:
        """Write `defs.yaml` or `component.py`, and what else the component needs."""
        attributes = self.attributes(request.params, _folder(request).name)
        if request.scaffold_format == "python":
            (request.target_path / "component.py").write_text(self._python(request, attributes))
        else:
            dg.scaffold_component(request, attributes)
            self._require(request)
        self.add_files(request)

    @abstractmethod
    def attributes(self, params: Params, folder: str) -> dict[str, Any]:
        """Return the attributes; the folder's name is the default for names."""

    def environment(self, params: Params) -> list[str]:
        """Return the environment variables that the component needs."""
        return []

    def add_files(self, request: dg.ScaffoldRequest[Params]) -> None:
        """Write further files into the folder of the component."""

    def python(self, attributes: dict[str, Any]) -> tuple[str, dict[str, str]]:
        """Return further imports, and the arguments of the component as Python has them."""
        return "", {name: repr(value) for name, value in attributes.items()}

    def _python(self, request: dg.ScaffoldRequest[Params], attributes: dict[str, Any]) -> str:
        module, _, name = request.type_name.rpartition(".")
        imports, arguments = self.python(attributes)
        lines = "".join(f"        {argument}={value},\n" for argument, value in arguments.items())
        return _PYTHON.substitute(module=module, name=name, imports=imports, arguments=lines)

    def _require(self, request: dg.ScaffoldRequest[Params]) -> None:
        variables = self.environment(request.params)
        if variables:
            path = request.target_path if request.append else request.target_path / "defs.yaml"
            with path.open("a") as file:
                file.write("".join(["\nrequirements:\n  env:\n", *(f"    - {name}\n" for name in variables)]))


class ResourceScaffolder(QueueScaffolder[ResourceParams]):
    """The scaffolder of a queue resource."""

    @classmethod
    def get_scaffold_params(cls) -> type[ResourceParams]:
        """Return what the command line may give."""
        return ResourceParams

    def attributes(self, params: ResourceParams, folder: str) -> dict[str, Any]:
        """Return a queue that is named as the folder, or the stream that is named."""
        names = Names(params.queue_name, params.stream_name, params.group) or Names(folder)
        return {
            "resource_key": params.resource_key,
            "url_env_var": params.url_env_var,
            **_given(names),
        }

    def environment(self, params: ResourceParams) -> list[str]:
        """Return the variable with the URL."""
        return [params.url_env_var]


class AssetScaffolder(QueueScaffolder[AssetParams]):
    """The base of the scaffolders of assets, which write the asset's function into a file beside the `defs.yaml`.

    Attributes:
        option: the attribute that names the function, and the function's own name.
        module: the name of the file.
        template: its content.
    """

    option: ClassVar[str]
    module: ClassVar[str]
    template: ClassVar[Template]

    @classmethod
    def get_scaffold_params(cls) -> type[AssetParams]:
        """Return what the command line may give."""
        return AssetParams

    def names(self, params: AssetParams) -> dict[str, str]:
        """Return the names of the queue, or the stream and group."""
        return _given(_names(params))

    def attributes(self, params: AssetParams, folder: str) -> dict[str, Any]:
        """Return an asset that is named as the folder."""
        return {
            "asset": {"key": params.asset_key or _identifier(folder), "kinds": ["redis"]},
            self.option: params.function or f".{self.module}:{self.option}",
            "batch_size": 1000,
            "resource_key": params.resource_key,
            **self.names(params),
        }

    def python(self, attributes: dict[str, Any]) -> tuple[str, dict[str, str]]:
        """Return the import of the function, and the asset as a spec."""
        module, _, function = attributes[self.option].partition(":")
        _, plain = super().python(attributes)
        return f"from {module} import {function}\n", {
            **plain,
            "asset": _spec(attributes["asset"]["key"]),
            self.option: function,
        }

    def add_files(self, request: dg.ScaffoldRequest[AssetParams]) -> None:
        """Write the function, unless the parameters name one or the file is there."""
        folder = _folder(request)
        path = folder / f"{self.module}.py"
        if request.params.function is None and not path.exists():
            path.write_text(self.template.substitute(key=request.params.asset_key or _identifier(folder.name)))


class DrainScaffolder(AssetScaffolder):
    """The scaffolder of a drain asset, with its handler."""

    option = "process"
    module = "handler"
    template = _HANDLER


class PublishScaffolder(AssetScaffolder):
    """The scaffolder of a publish asset, with its producer."""

    option = "produce"
    module = "producer"
    template = _PRODUCER

    def names(self, params: AssetParams) -> dict[str, str]:
        """Return the name of the queue or stream."""
        return _given(Names(params.queue_name, params.stream_name))


class SourceAssetParams(BaseModel):
    """The parameters of `dg scaffold defs` for the asset of a queue."""

    asset_key: str | None = Field(default=None, description="Key of the asset; default: the folder's name.")
    resource_key: str = Field(default="queue", description="Key of the queue's resource.")
    queue_name: str | None = Field(default=None, description="Name of the queue; default: the resource's.")
    stream_name: str | None = Field(default=None, description="Name of a stream, instead of a queue.")
    group: str | None = Field(default=None, description="Name of the group of the stream; default: the resource's.")


class SourceAssetScaffolder(QueueScaffolder[SourceAssetParams]):
    """The scaffolder of the asset of a queue, with a check of its dead letters."""

    @classmethod
    def get_scaffold_params(cls) -> type[SourceAssetParams]:
        """Return what the command line may give."""
        return SourceAssetParams

    def attributes(self, params: SourceAssetParams, folder: str) -> dict[str, Any]:
        """Return an asset that is named as the folder."""
        return {
            "asset": {"key": params.asset_key or _identifier(folder), "kinds": ["redis"]},
            "checks": [{"max_dead": 0}],
            "resource_key": params.resource_key,
            **_given(_names(params)),
        }

    def python(self, attributes: dict[str, Any]) -> tuple[str, dict[str, str]]:
        """Return the import of a check's class, and the asset as a spec."""
        imports = "from dagster_sluicegate.components.source_asset import QueueCheckSpec\n"
        return imports, {
            "asset": _spec(attributes["asset"]["key"]),
            **{name: repr(value) for name, value in attributes.items() if name not in ("asset", "checks")},
            "checks": "[QueueCheckSpec(max_dead=0)]",
        }


class DepthSensorScaffolder(QueueScaffolder[DepthSensorParams]):
    """The scaffolder of a depth sensor."""

    @classmethod
    def get_scaffold_params(cls) -> type[DepthSensorParams]:
        """Return what the command line may give."""
        return DepthSensorParams

    def attributes(self, params: DepthSensorParams, folder: str) -> dict[str, Any]:
        """Return a sensor that is named as the folder."""
        return {
            "name": params.name or _identifier(folder),
            "target": params.target,
            "min_ready": params.min_ready,
            "max_age_seconds": params.max_age_seconds,
            "resource_key": params.resource_key,
            **_given(_names(params)),
        }


class BatchSensorParams(BaseModel):
    """The parameters of `dg scaffold defs` for a sensor of batches."""

    name: str | None = Field(default=None, description="Name of the sensor; default: the folder's.")
    target: str = Field(description="Selection of the assets to run, such as key:report.")
    asset: str = Field(description="Key of the asset that publishes the batches.")
    resource_key: str = Field(default="queue", description="Key of the queue's resource.")


class BatchSensorScaffolder(QueueScaffolder[BatchSensorParams]):
    """The scaffolder of a sensor of batches."""

    @classmethod
    def get_scaffold_params(cls) -> type[BatchSensorParams]:
        """Return what the command line may give."""
        return BatchSensorParams

    def attributes(self, params: BatchSensorParams, folder: str) -> dict[str, Any]:
        """Return a sensor that is named as the folder."""
        return {
            "name": params.name or _identifier(folder),
            "target": params.target,
            "asset": params.asset,
            "resource_key": params.resource_key,
        }

    def python(self, attributes: dict[str, Any]) -> tuple[str, dict[str, str]]:
        """Return the key of the asset as Python has it."""
        imports, arguments = super().python(attributes)
        return imports, {**arguments, "asset": f"dg.AssetKey.from_user_string({attributes['asset']!r})"}


class GatesSensorScaffolder(QueueScaffolder[DepthSensorParams]):
    """The scaffolder of a sensor for many queues, with its first gate."""

    @classmethod
    def get_scaffold_params(cls) -> type[DepthSensorParams]:
        """Return what the command line may give."""
        return DepthSensorParams

    def attributes(self, params: DepthSensorParams, folder: str) -> dict[str, Any]:
        """Return a sensor that is named as the folder."""
        gate = params.model_dump(include={"target", "resource_key", "min_ready", "max_age_seconds"})
        gate |= _given(_names(params))
        return {"name": params.name or _identifier(folder), "queues": [gate]}

    def python(self, attributes: dict[str, Any]) -> tuple[str, dict[str, str]]:
        """Return the import of a gate's class, and the gate as an object of it."""
        gate = ", ".join(f"{name}={value!r}" for name, value in attributes["queues"][0].items())
        imports = "from dagster_sluicegate.components.gates_sensor import QueueGateSpec\n"
        return imports, {"name": repr(attributes["name"]), "queues": f"[QueueGateSpec({gate})]"}


def _folder(request: dg.ScaffoldRequest[Any]) -> Path:
    """Return the folder of the component; a request that appends names the file."""
    return request.target_path.parent if request.append else request.target_path


def _names(params: AssetParams | SourceAssetParams | DepthSensorParams) -> Names:
    return Names(params.queue_name, params.stream_name, params.group)


def _given(names: Names) -> dict[str, str]:
    return {name: value for name, value in asdict(names).items() if value is not None}


def _identifier(name: str) -> str:
    """Return a name that Dagster takes for a definition."""
    return re.sub(r"\W", "_", name)


def _spec(key: str) -> str:
    return f"dg.AssetSpec(dg.AssetKey.from_user_string({key!r}), kinds={{'redis'}})"
