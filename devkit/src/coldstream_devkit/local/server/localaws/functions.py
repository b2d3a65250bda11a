"""Lambda: which interpreter runs a handler, what its errors look like, where its log goes."""

from __future__ import annotations

import json
import queue
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from .options import Options

# The server's own settings, which a handler must not see.
_HIDDEN = (
    "GATEWAY_PORT",
    "IOT_MTLS_ENABLED",
    "LOG_LEVEL",
    "MINISTACK_HOST",
    "PERSIST_STATE",
    "PYTHONPATH",
    "S3_DATA_DIR",
    "S3_PERSIST",
    "SFTP_ENABLED",
    "STATE_DIR",
    "XDG_CACHE_HOME",
)


def _edit_worker_script(old: str, new: str) -> None:
    """Change the program that MiniStack runs in each Python sandbox, at exactly one place."""
    from ministack.core import lambda_runtime as runtime

    script = runtime._PYTHON_WORKER_SCRIPT
    if script.count(old) != 1:
        raise RuntimeError(f"MiniStack's worker script is not the one expected: {old!r}")
    runtime._PYTHON_WORKER_SCRIPT = script.replace(old, new)


def function_runtime(options: Options) -> None:
    """Run each function in the interpreter chosen for its runtime, in an environment like Lambda's.

    AWS: has one image for each runtime, names it in AWS_EXECUTION_ENV, and finds modules in the
    function's code first, then in its layers, then in what the runtime brings. MiniStack: uses the
    interpreter it runs in itself, with its own packages, hands down its own environment variables,
    and looks into layers before the code.
    """
    from ministack.core import lambda_runtime as runtime

    _edit_worker_script(
        "    _ms_install_invoke_depth()\n    try:",
        "    sys.path.remove(code_dir)\n"
        "    sys.path.insert(0, code_dir)\n"
        "    _ms_install_invoke_depth()\n    try:",
    )
    detect = runtime._detect_runtime_binary

    def choose(name: str) -> tuple[str, str]:
        if not name.startswith("python"):
            binary, script = detect(name)
            return str(binary), str(script)
        prelude = (
            "import os\n"
            f"os.environ['AWS_EXECUTION_ENV'] = 'AWS_Lambda_{name}'\n"
            f"for name in {_HIDDEN!r}: os.environ.pop(name, None)\n"
            # The bundle's is for Lambda's processor; what is imported is not looked for again.
            "try: import re2\n"
            "except ImportError: pass\n"
        )
        binary = options.python_of_runtime.get(name, options.python)
        return binary, prelude + runtime._PYTHON_WORKER_SCRIPT

    runtime._detect_runtime_binary = choose


def function_errors(_: Options) -> None:
    """Report errors of Python functions as Lambda does.

    AWS: errorType is the class of the exception, stackTrace the frames, requestId the request; a
    handler that cannot be imported is a Runtime.ImportModuleError. MiniStack: every exception is a
    Runtime.HandlerError without frames, and a failed import a RuntimeError.
    """
    from ministack.core import lambda_runtime as runtime
    from ministack.services import lambda_svc

    _edit_worker_script(
        '"trace": traceback.format_exc()}',
        '"trace": traceback.format_exc(), "type": type(e).__name__, '
        '"frames": traceback.format_tb(e.__traceback__)[1:]}',
    )
    _edit_worker_script(
        'json.dumps({"status": "error", "error": str(e)})',
        'json.dumps({"status": "error", "error": json.dumps({"errorType": '
        '"Runtime.ImportModuleError" if isinstance(e, ImportError) else type(e).__name__, '
        '"errorMessage": "Unable to import module \'%s\': %s" % (module_name, e) '
        "if isinstance(e, ImportError) else str(e), "
        '"stackTrace": traceback.format_tb(e.__traceback__)})})',
    )
    # MiniStack's own code between these two drops what it does not know.
    answer = threading.local()
    invoke = runtime.Worker.invoke
    execute = lambda_svc._execute_function_warm

    def invoke_and_remember(worker: Any, *arguments: Any, **named: Any) -> Any:
        answer.last = invoke(worker, *arguments, **named)
        return answer.last

    def execute_with_errors(function: Any, event: Any, request_id: str) -> Any:
        answer.last = {}
        result = execute(function, event, request_id)
        body = result.get("body")
        if result.get("error") and isinstance(body, dict):
            body.update(_described(body, answer.last))
            body["requestId"] = request_id
        return result

    runtime.Worker.invoke = invoke_and_remember
    lambda_svc._execute_function_warm = execute_with_errors


def _described(body: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """What the sandbox knows about an error and MiniStack's answer does not say."""
    start = "Worker init failed: {"
    message = str(body.get("errorMessage", ""))
    if message.startswith(start):
        described: dict[str, Any] = json.loads(message[len(start) - 1 :])
        return described
    if "type" in answer:
        return {"errorType": answer["type"], "stackTrace": answer["frames"]}
    return {}


# A line that no handler prints. It tells that all lines before it belong to the invocation.
_END_OF_LOG = "\x1elocalaws: end of invocation"
_LONGEST_WAIT_SECONDS = 2.0


def whole_logs(_: Options) -> None:
    """Keep each line of a function's log with the invocation that wrote it.

    AWS: the log of an invocation is complete and its own. MiniStack: collects until 5 ms pass
    without a line, so a busy machine puts the rest into the next invocation's log or loses it, and
    a function that logs nothing takes 50 ms longer.
    """
    from ministack.core import lambda_runtime as runtime

    _edit_worker_script(
        "            result = handler_fn(event, context)\n",
        "            result = handler_fn(event, context)\n"
        f"            print({_END_OF_LOG!r}, file=sys.stderr, flush=True)\n",
    )
    _edit_worker_script(
        "        except Exception as e:\n            _real_stdout.write",
        "        except Exception as e:\n"
        f"            print({_END_OF_LOG!r}, file=sys.stderr, flush=True)\n"
        "            _real_stdout.write",
    )

    quiescent = runtime.Worker._drain_stderr_bounded

    def drain(worker: Any, *arguments: Any, **named: Any) -> str:
        if not str(worker.config.get("Runtime", "python")).startswith("python"):
            return str(quiescent(worker, *arguments, **named))
        return "\n".join(_lines_until_end(worker._stderr_queue.get))

    runtime.Worker._drain_stderr_bounded = drain


def _lines_until_end(get: Callable[..., str]) -> list[str]:
    lines: list[str] = []
    deadline = time.monotonic() + _LONGEST_WAIT_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        try:
            line = get(timeout=left)
        except queue.Empty:
            break
        if line == _END_OF_LOG:
            break
        lines.append(line)
    return lines


def saved_log_queries(_: Options) -> None:
    """Let a stack have saved queries of Logs Insights.

    AWS: CloudFormation has AWS::Logs::QueryDefinition. MiniStack: has neither the type, which fails
    the stack, nor the API. Nothing here asks for them, so they are only counted as made.
    """
    from ministack.services.cloudformation import provisioners

    def create(logical_id: str, props: dict[str, Any], stack: str) -> Any:
        query_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{stack}/{logical_id}"))
        return query_id, {"QueryDefinitionId": query_id}

    def update(query_id: str, old: dict[str, Any], props: dict[str, Any], stack: str) -> Any:
        return query_id, {"QueryDefinitionId": query_id}

    provisioners._RESOURCE_HANDLERS["AWS::Logs::QueryDefinition"] = {
        "create": create,
        "update": update,
        "delete": lambda query_id, props: None,
    }
