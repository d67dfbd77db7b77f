"""Every failure that pikobot reports, grouped by what the caller can do about it.

Each class carries the exit code of the command line and the code of a JSON-RPC error object.
Messages name what failed, the object and the next command; never memory text, never a secret.
Expected outcomes (lease lost, nothing to do) are values of the functions that produce them, not exceptions.

    PikobotError                 1   failed; see the message
    ├── UsageError               2   fix the input
    │   ├── InvalidParams        2   ... the parameters of an RPC method or a tool
    │   ├── UnknownMethod        2   ... the name of an RPC method
    │   ├── MalformedRequest     2   ... the JSON of a request
    │   └── ConfigError          2   ... config.toml, credentials.toml, --set
    ├── NotFound                 3   ask for something else
    ├── NotAllowed               3   use the right token or scope
    ├── InstanceBusy             4   wait, or talk to the process that serves the instance
    ├── ProviderError            5   the model's provider failed; the attempt says whether it may have charged
    │   └── BudgetExceeded       5   raise the budget, or wait for the next period
    └── DamagedData              6   copy everything, then repair (RECOVERY.md)
        ├── SchemaTooNew         6   use a newer pikobot
        └── SchemaMismatch       6   the database was migrated by something else
"""

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """Exit codes of every command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    BUSY = 4
    PROVIDER = 5
    DAMAGED = 6


class RpcCode(IntEnum):
    """Codes of JSON-RPC error objects: the reserved ones (JSON-RPC 2.0, section 5.1) and ours."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    FAILED = -32000
    USAGE = -32002
    NOT_FOUND = -32003
    BUSY = -32004
    PROVIDER = -32005
    DAMAGED = -32006
    NOT_ALLOWED = -32007


class PikobotError(Exception):
    """Root of everything that pikobot raises on purpose."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED
    rpc_code: ClassVar[RpcCode] = RpcCode.FAILED


class UsageError(PikobotError):
    exit_code = ExitCode.USAGE
    rpc_code = RpcCode.USAGE


class InvalidParams(UsageError):
    rpc_code = RpcCode.INVALID_PARAMS


class UnknownMethod(UsageError):
    rpc_code = RpcCode.METHOD_NOT_FOUND


class MalformedRequest(UsageError):
    rpc_code = RpcCode.PARSE_ERROR


class ConfigError(UsageError):
    pass


class NotFound(PikobotError):
    exit_code = ExitCode.NOT_FOUND
    rpc_code = RpcCode.NOT_FOUND


class NotAllowed(PikobotError):
    exit_code = ExitCode.NOT_FOUND
    rpc_code = RpcCode.NOT_ALLOWED


class InstanceBusy(PikobotError):
    exit_code = ExitCode.BUSY
    rpc_code = RpcCode.BUSY


class ProviderError(PikobotError):
    exit_code = ExitCode.PROVIDER
    rpc_code = RpcCode.PROVIDER


class BudgetExceeded(ProviderError):
    pass


class DamagedData(PikobotError):
    exit_code = ExitCode.DAMAGED
    rpc_code = RpcCode.DAMAGED


class SchemaTooNew(DamagedData):
    pass


class SchemaMismatch(DamagedData):
    pass
