"""Make a task of a function that works on batches of messages."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.bases.decorator import DecoratedOperator, task_decorator_factory

from airflow_provider_sluicegate.operators.drain import RedisQueueDrainOperator

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.bases.decorator import TaskDecorator

__all__ = ["redis_queue_task"]

_CONTEXT_NAMES = ("ctx", "context")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def redis_queue_task(
    python_callable: Callable[..., object] | None = None, *, multiple_outputs: bool = False, **kwargs: Any
) -> TaskDecorator:
    """
    Make a task of a handler: ``@task.redis_queue(queue_name="orders")`` drains the queue with the decorated function.

    The function gets the batch as its first argument, and a :class:`sluicegate.DrainContext` as its second if that is
    called ``ctx`` or ``context``. Its other arguments are given where the task is called, so they may be outputs of
    other tasks or templates, and tasks can be mapped over them. Arguments with the name of an Airflow context variable,
    such as ``ds`` or ``ti``, are filled in. The XCom is the summary of the drain, not what the function returns, which
    gives verdicts.

    **Delivery semantics.** As for :class:`~airflow_provider_sluicegate.operators.drain.RedisQueueDrainOperator`.

    .. code-block:: python

        @task.redis_queue(queue_name="orders-{{ task.op_kwargs['tenant'] }}", batch_size=500)
        def store(batch: list[Message], ctx: DrainContext, tenant: str) -> None: ...


        store.expand(tenant=["acme", "initech"])

    :param python_callable: the decorated function.
    :param multiple_outputs: store each entry of the summary as an XCom of its own, too.
    :param kwargs: arguments of :class:`~airflow_provider_sluicegate.operators.drain.RedisQueueDrainOperator`.
    """
    return task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=multiple_outputs,
        decorated_operator_class=_RedisQueueDecoratedOperator,
        **kwargs,
    )


class _RedisQueueDecoratedOperator(DecoratedOperator, RedisQueueDrainOperator):
    """
    Drains a queue with the decorated function.

    :param python_callable: the function.
    :param op_args: values for its arguments behind the batch and the context. (templated)
    :param op_kwargs: the same by name. (templated)
    """

    template_fields: Sequence[str] = (*DecoratedOperator.template_fields, *RedisQueueDrainOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {**DecoratedOperator.template_fields_renderers}
    shallow_copy_attrs: Sequence[str] = (
        *DecoratedOperator.shallow_copy_attrs,
        *RedisQueueDrainOperator.shallow_copy_attrs,
    )
    custom_operator_name = "@task.redis_queue"

    def __init__(
        self,
        *,
        python_callable: Callable[..., object],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            python_callable=_called_without_batch(python_callable),
            op_args=op_args,
            op_kwargs=op_kwargs,
            process=python_callable,
            **kwargs,
        )

    def handler(self, context: Context) -> Callable[..., object]:
        """Return the function with the arguments that the DAG gave it."""
        function = super().handler(context)
        signature = inspect.signature(self.python_callable)
        values: dict[str, Any] = {name: context[name] for name in signature.parameters if name in context}  # type: ignore[literal-required]
        for name, value in signature.bind_partial(*self.op_args, **self.op_kwargs).arguments.items():
            values |= value if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD else {name: value}
        return functools.partial(function, **values) if values else function


def _called_without_batch(function: Callable[..., object]) -> Callable[..., object]:
    """Return the function with the signature that its call in the DAG has: without the batch and the context."""
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind not in _POSITIONAL:
        raise TypeError(f"{function.__name__} takes no batch; write {function.__name__}(batch) or (batch, ctx)")
    rest = parameters[2:] if len(parameters) > 1 and parameters[1].name in _CONTEXT_NAMES else parameters[1:]
    rest = [parameter for parameter in rest if parameter.kind is not inspect.Parameter.VAR_POSITIONAL]

    @functools.wraps(function)
    def called(*args: object, **kwargs: object) -> object:
        raise AssertionError("Airflow drains the queue with the function itself")

    called.__signature__ = inspect.Signature(rest)  # type: ignore[attr-defined]
    return called
